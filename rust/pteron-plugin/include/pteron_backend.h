/* Backends of pteron, compiled elsewhere. The Rust side of these declarations is src/abi.rs.
 *
 * A Python extension module hands out a capsule called PTERON_BACKEND_CAPSULE that points to a struct
 * pteron_backend; pteron.register_backend(name, capsule) makes it known. A library that does not know Python
 * exports
 *
 *     const struct pteron_backend *pteron_backend_v1(void);
 *
 * and pteron.plugins.open_library(path) makes the capsule. The struct, and the code behind it, must stay until the
 * process ends.
 *
 * Functions return PTERON_OK, or PTERON_FAILED after giving the reason to error->set; any other number counts as
 * PTERON_FAILED. Nothing may unwind (no C++ exception) through them. Whatever a struct points to is valid during the
 * call only, unless it says otherwise. Functions of a backend may be called from any thread, several at once; those
 * of one delegate are called one at a time. `processed`, the compile specs and the named data come from files that
 * nobody vouches for: check them.
 *
 * Within a major version structs only grow at their ends: those with a struct_size say how much of them is there.
 */
#ifndef PTERON_BACKEND_H
#define PTERON_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PTERON_BACKEND_CAPSULE "pteron.backend.v1"
#define PTERON_ABI_MAJOR 1
#define PTERON_OK 0
#define PTERON_FAILED 1

struct pteron_bytes {
  const uint8_t *data; /* may be null when len is 0 */
  size_t len;
};

struct pteron_error {
  void *host;
  /* The host copies the text (UTF-8, the first 4096 bytes of it). debug_handle: of the operator at fault in the
   * numbering of this delegate, or -1. To be called from the thread of the call; the last text counts. */
  void (*set)(void *host, struct pteron_bytes text, int64_t debug_handle);
};

struct pteron_compile_spec {
  struct pteron_bytes key; /* UTF-8 */
  struct pteron_bytes value;
};

struct pteron_option {
  struct pteron_bytes key; /* UTF-8 */
  int32_t kind;            /* 0: bool, 1: int, both in number; 2: string, in text */
  int64_t number;
  struct pteron_bytes text;
};

struct pteron_init {
  uint32_t struct_size;
  struct pteron_bytes method;    /* UTF-8 */
  struct pteron_bytes processed; /* what the exporter's preprocess produced */
  const struct pteron_compile_spec *specs;
  size_t spec_count;
  const struct pteron_option *options;
  size_t option_count;
  void *host;
  /* Named data of the program: PTERON_OK and the bytes, or PTERON_FAILED where there is none of that name. The bytes
   * are those of the file itself, mapped where it is, the same for every delegate and session: read them in place.
   * May be called, from any thread, and its bytes stay, as long as the delegate. */
  int32_t (*named_data)(void *host, struct pteron_bytes key, struct pteron_bytes *out);
  /* A host for named_data that stays, with the bytes that it gives, until release_data, whatever becomes of the
   * delegate: for a cache that outlives it. Given `host`, while the delegate lives; never NULL. The program stays in
   * memory meanwhile. Both are missing in hosts of the first version: struct_size then ends before them. */
  void *(*keep_data)(void *host);
  void (*release_data)(void *kept); /* once for each keep_data, from any thread */
  /* Threads that a call of the delegate may use at most, the calling one included. Missing in hosts before 0.2: then
   * struct_size ends before it. */
  size_t num_threads;
};

/* Element types are the numbers of the file format (schema/scalar_type.fbs):
 *
 *   0 uint8       1 int8        2 int16       3 int32       4 int64
 *   5 float16     6 float32     7 float64    11 bool (a byte; 0 is false)
 *   8 complex32   9 complex64  10 complex128 (real and imaginary part, 4, 8 and 16 bytes together)
 *  15 bfloat16   22 bits16     27 uint16     28 uint32     29 uint64
 *  23 float8_e5m2  24 float8_e4m3fn  25 float8_e5m2fnuz  26 float8_e4m3fnuz
 *
 * Other numbers do not come (12, 13, 14, 16 and 17 are PyTorch's quantised types, whose tensors are stored as
 * integers). A backend refuses those that it does not know.
 *
 * Tensors of the host are dense in some order of their dimensions, which the strides tell; row-major where the
 * program does not say otherwise. There are at most 16 dimensions, and none for a scalar. */
struct pteron_tensor {
  void *data;    /* may be null when nbytes is 0 */
  int32_t dtype; /* see above */
  int32_t ndim;
  const int64_t *shape;
  const int64_t *strides; /* in elements */
  size_t nbytes;          /* of all elements */
};

#define PTERON_KIND_NONE 0
#define PTERON_KIND_TENSOR 1 /* to be read only */
#define PTERON_KIND_INT 2
#define PTERON_KIND_DOUBLE 3
#define PTERON_KIND_BOOL 4 /* in number */
#define PTERON_KIND_STRING 5

struct pteron_arg {
  int32_t kind;
  struct pteron_tensor tensor;
  int64_t number;
  double real;
  struct pteron_bytes text;
};

/* A tensor to write; its memory is apart from that of the inputs and of the other outputs, and holds anything. It
 * has the extents of `bound` when a call begins, and keeps them without resize. */
struct pteron_output {
  struct pteron_tensor tensor;
  const int64_t *bound; /* largest extents, tensor.ndim of them */
  size_t capacity;      /* bytes at tensor.data that may be written */
  void *host;
  /* Gives the output its extents for this call and updates `tensor`: same rank, at most as many elements as the bound
   * has, and no others than the bound where the program fixes the shape. PTERON_FAILED changes nothing; when execute
   * then fails without a text, the caller reads why. The host does not know what the extents have to be: that they
   * are right, and each within its bound, is up to the backend. To be called from the thread of the call. */
  int32_t (*resize)(struct pteron_output *output, const int64_t *shape, size_t ndim);
};

struct pteron_event;

struct pteron_execute {
  uint32_t struct_size;
  uint64_t instruction;
  struct pteron_bytes method; /* UTF-8 */
  void *host;
  /* Not 0: stop early. May be asked from any thread, until execute returns. A backend that works for long asks now
   * and then, and stops by returning PTERON_FAILED, whatever the text: the call then ends as Cancelled or
   * DeadlineExceeded. Outputs need not be written, and the delegate must be fit for the next call. */
  int32_t (*is_cancelled)(void *host);
  /* Takes an event; null in calls that nobody traces. To be called from the thread of the call. */
  void (*event)(void *host, const struct pteron_event *event);
};

/* Something that took time inside a delegate. */
struct pteron_event {
  uint32_t struct_size; /* sizeof(struct pteron_event); a smaller one is ignored */
  struct pteron_bytes name; /* part of the delegate, UTF-8; data null: id says it */
  int64_t id;               /* as in the debug handle map of the exporter */
  uint64_t start_ns;        /* on a clock of the plugin's choice */
  uint64_t end_ns;
  struct pteron_bytes metadata; /* whatever the plugin adds */
};

/* Copies a buffer: PTERON_OK, or PTERON_FAILED where it is none that can be copied, which get_state hands on. */
typedef int32_t (*pteron_give_buffer)(void *host, struct pteron_bytes name, const struct pteron_tensor *tensor);

struct pteron_backend {
  uint32_t abi_major;   /* PTERON_ABI_MAJOR */
  uint32_t struct_size; /* sizeof(struct pteron_backend) */
  const char *name;     /* what programs name, UTF-8 */
  void *plugin;
  /* May be null: always usable. Else PTERON_FAILED says why not. */
  int32_t (*is_available)(void *plugin, struct pteron_error *error);
  /* Makes a delegate, one for each call site and session. Before PTERON_OK it must set
   *
   *   *num_outputs: how many of a call's last arguments are outputs. Not to set it is an error. More than a call has
   *                 arguments, or one that is not a tensor, is an error of the program.
   *   *delegate:    what the functions below are given. It is NULL if it is not set, which is no error: for a
   *                 backend without anything to keep.
   *
   * After a failure both are ignored, and destroy is not called: init frees what it has made. */
  int32_t (*init)(void *plugin, const struct pteron_init *init, void **delegate, size_t *num_outputs,
                  struct pteron_error *error);
  /* Computes the outputs. What they hold after a failure is not looked at; the delegate may be called again. */
  int32_t (*execute)(void *delegate, const struct pteron_execute *execute, const struct pteron_arg *inputs,
                     size_t input_count, struct pteron_output *outputs, size_t output_count,
                     struct pteron_error *error);
  /* May be null. Called once for each init that succeeded, with NULL where init gave NULL; no other function of the
   * delegate runs then or later, nor may named_data be called after it. */
  void (*destroy)(void *delegate);

  /* Mutable buffers that delegates own; called between runs. All four may be null, or missing: struct_size then
   * is smaller. Names are those of the model, since all delegates and the method share one space of names;
   * contents are row-major. */

  /* Not 0: this delegate gives its buffers. May be null: it does if get_state is set. */
  int32_t (*has_state)(void *delegate);
  /* Calls give for each buffer. */
  int32_t (*get_state)(void *delegate, pteron_give_buffer give, void *host, struct pteron_error *error);
  /* Sets the buffers named, all or some of those that get_state gives, each of its dtype and shape. */
  int32_t (*set_state)(void *delegate, const struct pteron_bytes *names, const struct pteron_tensor *tensors,
                       size_t count, struct pteron_error *error);
  int32_t (*reset_state)(void *delegate, struct pteron_error *error); /* to the initial contents */
};

/* Kernels of custom operators.
 *
 * A capsule called PTERON_KERNEL_CAPSULE that points to a struct pteron_kernel, which pteron.register_kernel(name,
 * capsule) makes known. What is said above of tables, functions and errors holds for it too. */

#define PTERON_KERNEL_CAPSULE "pteron.kernel.v1"

/* Kinds that only kernels get: lists, whose members are in items. */
#define PTERON_KIND_INTS 6    /* const int64_t * */
#define PTERON_KIND_DOUBLES 7 /* const double * */
#define PTERON_KIND_BOOLS 8   /* const uint8_t *, 0 or 1 */
#define PTERON_KIND_TENSORS 9 /* const struct pteron_arg *, each a tensor or none */

/* One argument of the operator, in the order of its schema, without the outputs. Does not grow. */
struct pteron_value {
  struct pteron_arg arg; /* of a list, only the kind is set */
  const void *items;     /* null where it is no list, or an empty one */
  size_t item_count;
};

struct pteron_call {
  uint32_t struct_size;
};

struct pteron_kernel {
  uint32_t abi_major;   /* PTERON_ABI_MAJOR */
  uint32_t struct_size; /* sizeof(struct pteron_kernel) */
  const char *name;     /* the operator, UTF-8: "my_ns::my_op" */
  void *plugin;
  /* Computes the outputs, which are as those of execute; debug_handle of an error is not looked at. May be called from
   * any thread, several at once. What is in the arguments comes from files that nobody vouches for: check kinds, element
   * types and shapes. */
  int32_t (*call)(void *plugin, const struct pteron_call *call, const struct pteron_value *inputs,
                  size_t input_count, struct pteron_output *outputs, size_t output_count,
                  struct pteron_error *error);
};

#ifdef __cplusplus
}
#endif
#endif
