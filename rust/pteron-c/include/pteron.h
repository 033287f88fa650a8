/* pteron in a C or C++ program: loads .pte programs and runs them. The Rust side of these declarations is src/abi.rs.
 *
 *     pteron_program *program;
 *     pteron_method *method;
 *     struct pteron_arg x = pteron_arg_tensor(PTERON_FLOAT32, data, sizeof data, shape, 2), y;
 *     if (pteron_program_open("model.pte", &program) ||
 *         pteron_method_load(program, "forward", NULL, &method) ||
 *         pteron_method_execute(method, &x, 1, NULL) ||
 *         pteron_method_output(method, 0, &y))
 *       fprintf(stderr, "%s\n", pteron_error_text());
 *
 * Functions that can fail return PTERON_OK or one of the PTERON_ERROR_ codes; the text is then in pteron_error_text().
 * A function that failed has changed nothing, unless it says otherwise. What it gives is set on success alone.
 *
 * Handles are numbers in the form of a pointer: they point nowhere. NULL, a handle of another kind and one that was
 * freed are noticed by every function, which then returns PTERON_ERROR_MISUSE. Freeing NULL does nothing. A handle may be
 * freed while another thread uses it: what it stands for goes when that call has ended.
 *
 * Strings are UTF-8 and end in a zero byte. Paths are bytes as the system takes them. What a function gives a pointer to
 * belongs to the library; how long it stays is said there. Memory that a function is given is read or written during the
 * call only, unless it says otherwise.
 *
 * Any function may be called from any thread. A method (a session) runs one call at a time: a second one meanwhile
 * returns PTERON_ERROR_METHOD_BUSY and does not wait. Load one method for each thread: they share code and weights.
 *
 * A child of fork() may use the library and what its parent loaded. A method that another thread was running, loading or
 * freeing at the fork stays as it was then, in the child: METHOD_BUSY. Load it again there.
 *
 * Nothing unwinds out of these functions. Callbacks may not unwind (no C++ exception) into them.
 *
 * Structs with a struct_size grow at their ends: set it to sizeof the struct, and all else to zero, which means the
 * default; PTERON_INIT does so. Bytes beyond what the library knows must be zero. Backends and kernels of your own are
 * tables of pteron_backend.h.
 */
#ifndef PTERON_H
#define PTERON_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "pteron_backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PTERON_MUST_CHECK __attribute__((warn_unused_result))
#else
#define PTERON_MUST_CHECK
#endif

/* Programs built with one major version work with every library of it whose minor version is not smaller. */
#define PTERON_API_MAJOR 1
#define PTERON_API_MINOR 0

/* Codes; the names are those of the Python exceptions (docs/reference/errors.md). PTERON_OK is 0. */
#define PTERON_ERROR_MISUSE 1            /* a call that breaks the rules of this header */
#define PTERON_ERROR_PROGRAM 2           /* a file is damaged */
#define PTERON_ERROR_MISSING_OPERATOR 3  /* no kernel for an operator of the program */
#define PTERON_ERROR_MISSING_BACKEND 4   /* a backend is not registered, or not available */
#define PTERON_ERROR_METHOD_NOT_FOUND 5  /* the program has no such method */
#define PTERON_ERROR_INPUT 6             /* count, shape or value of an argument */
#define PTERON_ERROR_INPUT_TYPE 7        /* element type or kind of an argument */
#define PTERON_ERROR_KERNEL 8            /* an operator failed */
#define PTERON_ERROR_DELEGATE 9          /* a backend failed */
#define PTERON_ERROR_EXTERNAL_DATA 10    /* a data file is missing, damaged, or does not fit */
#define PTERON_ERROR_LIMIT_EXCEEDED 11   /* a limit, or memory that cannot be had */
#define PTERON_ERROR_CANCELLED 12        /* pteron_method_cancel; the method can be used again */
#define PTERON_ERROR_DEADLINE_EXCEEDED 13 /* the method can be used again */
#define PTERON_ERROR_METHOD_BUSY 14      /* the method runs already */
#define PTERON_ERROR_OUTPUTS_IN_USE 15   /* outputs of an earlier call are looked at */
#define PTERON_ERROR_NOT_FOUND 16        /* a file that is not there */
#define PTERON_ERROR_INTERNAL 17         /* a bug in pteron; the method refuses further use */

/* Element types, by the numbers of the file format. */
#define PTERON_UINT8 0
#define PTERON_INT8 1
#define PTERON_INT16 2
#define PTERON_INT32 3
#define PTERON_INT64 4
#define PTERON_FLOAT16 5
#define PTERON_FLOAT32 6
#define PTERON_FLOAT64 7
#define PTERON_COMPLEX32 8
#define PTERON_COMPLEX64 9
#define PTERON_COMPLEX128 10
#define PTERON_BOOL 11 /* a byte; 0 is false */
#define PTERON_BFLOAT16 15
#define PTERON_BITS16 22
#define PTERON_FLOAT8_E5M2 23
#define PTERON_FLOAT8_E4M3FN 24
#define PTERON_FLOAT8_E5M2FNUZ 25
#define PTERON_FLOAT8_E4M3FNUZ 26
#define PTERON_UINT16 27
#define PTERON_UINT32 28
#define PTERON_UINT64 29

typedef struct pteron_runtime pteron_runtime; /* kernels, backends, threads */
typedef struct pteron_program pteron_program; /* a loaded file: immutable, for any number of threads */
typedef struct pteron_method pteron_method;   /* a session of a method: its own memory and state */

/* Sets a struct with a struct_size to its defaults. */
#define PTERON_INIT(s) (memset((s), 0, sizeof *(s)), (void)((s)->struct_size = (uint32_t)sizeof *(s)))

/* --- the library ---------------------------------------------------------------------------------------------- */

/* PTERON_API_MAJOR * 65536 + PTERON_API_MINOR of the library. */
uint32_t pteron_api_version(void);
/* Version of pteron, such as "0.1.0". */
const char *pteron_version(void);
/* Bytes of an element; 0 for a number without element type. */
size_t pteron_dtype_size(int32_t dtype);
/* Name of an element type, such as "float32"; NULL for a number without one. */
const char *pteron_dtype_name(int32_t dtype);

/* --- errors --------------------------------------------------------------------------------------------------- */

#define PTERON_FIELD_MESSAGE 0     /* what happened, without the place */
#define PTERON_FIELD_METHOD 1      /* name of the method */
#define PTERON_FIELD_OPERATOR 2    /* full name of the operator */
#define PTERON_FIELD_BACKEND 3     /* name of the backend */
#define PTERON_FIELD_ARGUMENT 4    /* name of the argument */
#define PTERON_FIELD_EXPECTED 5
#define PTERON_FIELD_GOT 6
#define PTERON_FIELD_SOURCE_LINE 7 /* file and line of the model */
#define PTERON_FIELD_HINT 8        /* what to do */

/* The last error of this thread, in one line. What the functions of this section give stays until the next function
 * fails on this thread. Without an error: "", PTERON_OK, NULL. */
const char *pteron_error_text(void);
int32_t pteron_error_code(void);
/* One part of the last error; NULL where it has none. */
const char *pteron_error_field(int32_t field);
/* Name of a code, such as "InputError"; NULL for a number that is none. */
const char *pteron_error_name(int32_t code);

/* --- runtimes ------------------------------------------------------------------------------------------------- */

struct pteron_runtime_options {
  uint32_t struct_size;
  uint32_t reserved;
  size_t num_threads; /* threads of a pool of its own; 0: the pool of the process */
};

/* A runtime of its own. Every function that takes a runtime takes NULL for the one of the process. Freed, it stays as
 * long as programs that were loaded into it. */
PTERON_MUST_CHECK int32_t pteron_runtime_new(const struct pteron_runtime_options *options, pteron_runtime **runtime);
int32_t pteron_runtime_free(pteron_runtime *runtime);
/* Makes a backend known to programs of the runtime. A name that is taken is an error unless replace is not 0. The table
 * is copied; its name, its plugin and the code behind it stay until the process ends. */
PTERON_MUST_CHECK int32_t pteron_runtime_register_backend(pteron_runtime *runtime,
                                                          const struct pteron_backend *backend, int32_t replace);
/* The same for the kernel of a custom operator, before methods that call it are loaded. The table itself stays, too. */
PTERON_MUST_CHECK int32_t pteron_runtime_register_kernel(pteron_runtime *runtime, const struct pteron_kernel *kernel,
                                                         int32_t replace);
/* *is_available: 1 when the backend is registered and can be used here, else 0. */
PTERON_MUST_CHECK int32_t pteron_runtime_has_backend(pteron_runtime *runtime, const char *backend,
                                                     int32_t *is_available);
/* --- programs ------------------------------------------------------------------------------------------------- */

/* What a program may use; 0 is the default (docs/reference/limits.md). */
struct pteron_limits {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t arena_bytes;  /* planned memory of a session, in bytes */
  uint64_t instructions; /* of one call */
  uint64_t time_ns;      /* of one call, in nanoseconds */
  uint64_t nesting;      /* programs inside each other */
  uint64_t values;       /* of a method in its file */
  uint64_t rank;         /* dimensions of a tensor */
};

/* A file: path or data. */
struct pteron_source {
  uint32_t struct_size;
  uint32_t is_read; /* not 0: read the file rather than map it, since it may change or shrink */
  const char *path;
  const void *data;
  size_t size;
  /* NULL: data is copied. Else it is borrowed, must not change, and release(host) is called once, from any thread, when
   * nothing needs it any more, and when the load fails, too (but not when the call was PTERON_ERROR_MISUSE). */
  void (*release)(void *host);
  void *host;
};

struct pteron_load_options {
  uint32_t struct_size;
  uint32_t reserved;
  const struct pteron_limits *limits;             /* NULL: defaults */
  const struct pteron_source *const *data_files;  /* the .ptd files of the program */
  size_t data_file_count;
};

/* Loads a program: parses and checks it. Weights of files are mapped. options may be NULL. */
PTERON_MUST_CHECK int32_t pteron_program_load(pteron_runtime *runtime, const struct pteron_source *source,
                                              const struct pteron_load_options *options, pteron_program **program);
/* The same from a path, with the runtime of the process and without data files. */
PTERON_MUST_CHECK int32_t pteron_program_open(const char *path, pteron_program **program);
/* Methods that were loaded from the program stay usable. Strings and specs that the program gave end with it. */
int32_t pteron_program_free(pteron_program *program);

/* Lists of names; those of backends and operators are of one method, the others take NULL for it. */
#define PTERON_LIST_METHODS 0
#define PTERON_LIST_BACKENDS 1   /* that delegates of the method need */
#define PTERON_LIST_OPERATORS 2  /* that the method calls, such as "aten::add.out" */
#define PTERON_LIST_NAMED_DATA 3 /* keys of pteron_program_named_data */

PTERON_MUST_CHECK int32_t pteron_program_name_count(pteron_program *program, int32_t list, const char *method,
                                                    size_t *count);
/* *name stays as long as the program. */
PTERON_MUST_CHECK int32_t pteron_program_name(pteron_program *program, int32_t list, const char *method, size_t index,
                                              const char **name);

#define PTERON_INPUTS 0
#define PTERON_OUTPUTS 1
#define PTERON_BUFFERS 2 /* mutable buffers that the method itself keeps between calls */

/* What a method takes or gives at one place. */
struct pteron_spec {
  uint32_t struct_size;
  int32_t kind;          /* PTERON_KIND_NONE to PTERON_KIND_STRING */
  const char *name;      /* as exported, else input0, output0, ... */
  const char *text;      /* such as "float32[s0=1..8, 2]" */
  int32_t dtype;         /* of a tensor */
  int32_t ndim;          /* of a tensor */
  const int64_t *shape;  /* of a tensor: the largest extents, ndim of them */
  const int64_t *least;  /* of a tensor: the smallest extents; equal to shape where it is fixed */
  int32_t is_computed;   /* 1: an output that the method computes, for which the values below say nothing */
  int32_t has_range;     /* 1: an int that may be anything from number_min to number_max */
  int64_t number_min;
  int64_t number_max;
  int64_t number;        /* int or bool of the export, which an input without a range must equal */
  double real;           /* the same for a double */
  const char *string;    /* the same for a string */
};

/* which: PTERON_INPUTS, PTERON_OUTPUTS or PTERON_BUFFERS. */
PTERON_MUST_CHECK int32_t pteron_program_spec_count(pteron_program *program, const char *method, int32_t which,
                                                    size_t *count);
/* Fills *spec, whose struct_size must be set. What it points to stays as long as the program. */
PTERON_MUST_CHECK int32_t pteron_program_spec(pteron_program *program, const char *method, int32_t which, size_t index,
                                              struct pteron_spec *spec);
/* A blob that travels with the program; PTERON_ERROR_INPUT where there is none of that key. Stays as long as the
 * program. */
PTERON_MUST_CHECK int32_t pteron_program_named_data(pteron_program *program, const char *key,
                                                    struct pteron_bytes *data);
/* Bytes of planned memory of a session. Builds the method. */
PTERON_MUST_CHECK int32_t pteron_program_arena_bytes(pteron_program *program, const char *method, size_t *nbytes);
/* --- methods -------------------------------------------------------------------------------------------------- */

/* An option that a backend gets when the method is loaded. */
struct pteron_backend_option {
  const char *backend;
  struct pteron_option option;
};

struct pteron_method_options {
  uint32_t struct_size;
  int32_t has_seed;   /* not 0: random operators start at seed */
  uint64_t seed;
  size_t num_threads; /* most threads of its kernels; 0: all of the pool */
  const struct pteron_limits *limits; /* replace the program's where they are set */
  const struct pteron_backend_option *backend_options;
  size_t backend_option_count;
};

/* A session. The first one of a method builds its code, which all others share. options may be NULL. */
PTERON_MUST_CHECK int32_t pteron_method_load(pteron_program *program, const char *name,
                                             const struct pteron_method_options *options, pteron_method **method);
/* Sessions of several methods with one copy of the mutable buffers that the program shares between them; they run one
 * at a time. methods has room for count handles. */
PTERON_MUST_CHECK int32_t pteron_methods_load(pteron_program *program, const char *const *names, size_t count,
                                              const struct pteron_method_options *options, pteron_method **methods);
/* Its outputs end with it. */
int32_t pteron_method_free(pteron_method *method);

struct pteron_execute_options {
  uint32_t struct_size;
  uint32_t reserved;
  /* Memory for outputs, by position: dense and row-major, of exactly the element type and shape that the output has in
   * this call. data NULL: the method's own. Two of them may not overlap; one may overlap an input. */
  const struct pteron_tensor *outputs;
  size_t output_count;
  uint64_t deadline_ns; /* nanoseconds from now; 0: none */
  size_t num_threads;   /* most threads, of those of the method; 0: all */
};

/* Runs the method. Inputs of kind PTERON_KIND_TENSOR are never written to: nbytes is what may be read at data, and has to
 * be what dtype and shape ask for; strides (in elements, none negative) may be NULL for row-major, and nbytes is then
 * exactly their product. options may be NULL. The outputs of the call before end with this one, also when it fails. */
PTERON_MUST_CHECK int32_t pteron_method_execute(pteron_method *method, const struct pteron_arg *inputs,
                                                size_t input_count, const struct pteron_execute_options *options);
/* Outputs of the last call, which must have succeeded. */
PTERON_MUST_CHECK int32_t pteron_method_output_count(pteron_method *method, size_t *count);
/* Tensors lie where the method computed them, dense in the order that their strides tell, or in the memory that the
 * call was given. Read only; valid until the next pteron_method_execute, _set_state, _load_state, _reset_state or _free
 * of this method. */
PTERON_MUST_CHECK int32_t pteron_method_output(pteron_method *method, size_t index, struct pteron_arg *output);
/* Stops the call in progress, on whichever thread it is; without one it does nothing. */
int32_t pteron_method_cancel(pteron_method *method);

/* --- state ---------------------------------------------------------------------------------------------------- */

/* *is_stateful: 1 when a call leaves something for the next, else 0. */
PTERON_MUST_CHECK int32_t pteron_method_is_stateful(pteron_method *method, int32_t *is_stateful);
/* Calls give for each mutable buffer, row-major; what give returns other than PTERON_OK ends it as
 * PTERON_ERROR_CANCELLED. */
PTERON_MUST_CHECK int32_t pteron_method_get_state(pteron_method *method, pteron_give_buffer give, void *host);
/* Sets the buffers named. Nothing is changed when a name, element type or shape does not fit. */
PTERON_MUST_CHECK int32_t pteron_method_set_state(pteron_method *method, const char *const *names,
                                                  const struct pteron_tensor *tensors, size_t count);
/* All buffers back to their initial contents. The random stream goes on. */
PTERON_MUST_CHECK int32_t pteron_method_reset_state(pteron_method *method);
/* Writes and reads all buffers as a data file (.ptd). */
PTERON_MUST_CHECK int32_t pteron_method_save_state(pteron_method *method, const char *path);
PTERON_MUST_CHECK int32_t pteron_method_load_state(pteron_method *method, const char *path);
/* Starts the random stream of a seed. */
PTERON_MUST_CHECK int32_t pteron_method_seed(pteron_method *method, uint64_t seed);

/* --- values to pass in, and sources to load from ----------------------------------------------------------------- */

/* A dense row-major tensor of nbytes bytes at data, which have to be what dtype and shape ask for. */
static inline struct pteron_tensor pteron_tensor_of(int32_t dtype, const void *data, size_t nbytes,
                                                    const int64_t *shape, int32_t ndim) {
  struct pteron_tensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.data = (void *)(uintptr_t)data;
  tensor.dtype = dtype;
  tensor.ndim = ndim;
  tensor.shape = shape;
  tensor.nbytes = nbytes;
  return tensor;
}

static inline struct pteron_arg pteron_arg_none(void) {
  struct pteron_arg arg;
  memset(&arg, 0, sizeof arg);
  return arg;
}

static inline struct pteron_arg pteron_arg_tensor(int32_t dtype, const void *data, size_t nbytes,
                                                  const int64_t *shape, int32_t ndim) {
  struct pteron_arg arg = pteron_arg_none();
  arg.kind = PTERON_KIND_TENSOR;
  arg.tensor = pteron_tensor_of(dtype, data, nbytes, shape, ndim);
  return arg;
}

static inline struct pteron_arg pteron_arg_int(int64_t value) {
  struct pteron_arg arg = pteron_arg_none();
  arg.kind = PTERON_KIND_INT;
  arg.number = value;
  return arg;
}

static inline struct pteron_arg pteron_arg_double(double value) {
  struct pteron_arg arg = pteron_arg_none();
  arg.kind = PTERON_KIND_DOUBLE;
  arg.real = value;
  return arg;
}

static inline struct pteron_arg pteron_arg_bool(int value) {
  struct pteron_arg arg = pteron_arg_none();
  arg.kind = PTERON_KIND_BOOL;
  arg.number = value != 0;
  return arg;
}

static inline struct pteron_arg pteron_arg_string(const char *value) {
  struct pteron_arg arg = pteron_arg_none();
  arg.kind = PTERON_KIND_STRING;
  arg.text.data = (const uint8_t *)value;
  arg.text.len = value ? strlen(value) : 0;
  return arg;
}

static inline struct pteron_source pteron_source_path(const char *path) {
  struct pteron_source source;
  PTERON_INIT(&source);
  source.path = path;
  return source;
}

/* Bytes that are copied; set release to lend them. */
static inline struct pteron_source pteron_source_bytes(const void *data, size_t size) {
  struct pteron_source source;
  PTERON_INIT(&source);
  source.data = data;
  source.size = size;
  return source;
}

#ifdef __cplusplus
}
#endif
#endif
