/* Backends of pteron, compiled elsewhere. The Rust side of these declarations is src/abi.rs.
 *
 * A Python extension module hands out a capsule called PTERON_BACKEND_CAPSULE that points to a struct
 * pteron_backend; pteron.register_backend(name, capsule) makes it known. The struct, and the code behind it,
 * must stay until the process ends.
 *
 * Functions return PTERON_OK, or PTERON_FAILED after giving the reason to error->set. Nothing may unwind
 * (no C++ exception) through them. Whatever a struct points to is valid during the call only, unless it says
 * otherwise. Functions of a backend may be called from any thread, several at once; those of one delegate are
 * called one at a time. `processed`, the compile specs and the named data come from files that nobody vouches
 * for: check them.
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
  /* The host copies the text (UTF-8). debug_handle: of the operator at fault in the numbering of this delegate,
   * or -1. */
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
  /* Named data of the program: PTERON_OK and the bytes, or PTERON_FAILED where there is none of that name.
   * May be called, from any thread, and its bytes stay, as long as the delegate. */
  int32_t (*named_data)(void *host, struct pteron_bytes key, struct pteron_bytes *out);
};

struct pteron_tensor {
  void *data;
  int32_t dtype; /* the file format's number of the element type: float32 is 6, int64 is 4 */
  int32_t ndim;
  const int64_t *shape;
  const int64_t *strides; /* in elements */
  size_t nbytes;
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

struct pteron_output {
  struct pteron_tensor tensor;
  const int64_t *bound; /* largest extents, tensor.ndim of them */
  size_t capacity;      /* bytes at tensor.data that may be written */
  void *host;
  /* Gives the output its extents for this call and updates `tensor`. */
  int32_t (*resize)(struct pteron_output *output, const int64_t *shape, size_t ndim);
};

struct pteron_event;

struct pteron_execute {
  uint32_t struct_size;
  uint64_t instruction;
  struct pteron_bytes method; /* UTF-8 */
  void *host;
  int32_t (*is_cancelled)(void *host); /* not 0: stop early; may be asked from any thread */
  /* Takes an event; null in calls that nobody traces. To be called from the thread of the call. */
  void (*event)(void *host, const struct pteron_event *event);
};

/* Something that took time inside a delegate. */
struct pteron_event {
  uint32_t struct_size;
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
  /* num_outputs: how many of a call's last arguments are outputs. */
  int32_t (*init)(void *plugin, const struct pteron_init *init, void **delegate, size_t *num_outputs,
                  struct pteron_error *error);
  int32_t (*execute)(void *delegate, const struct pteron_execute *execute, const struct pteron_arg *inputs,
                     size_t input_count, struct pteron_output *outputs, size_t output_count,
                     struct pteron_error *error);
  void (*destroy)(void *delegate); /* may be null */

  /* Mutable buffers that delegates own; called between runs. All four may be null, or missing: struct_size then
   * is smaller. Names are those of the model, since all delegates and the method share one space of names;
   * contents are row-major. */

  /* Not 0: this delegate gives its buffers. May be null: it does if get_state is set. */
  int32_t (*has_state)(void *delegate);
  /* Calls give for each buffer. */
  int32_t (*get_state)(void *delegate, pteron_give_buffer give, void *host, struct pteron_error *error);
  /* Sets the buffers named: each one that get_state gives, of its dtype and shape. */
  int32_t (*set_state)(void *delegate, const struct pteron_bytes *names, const struct pteron_tensor *tensors,
                       size_t count, struct pteron_error *error);
  int32_t (*reset_state)(void *delegate, struct pteron_error *error); /* to the initial contents */
};

#ifdef __cplusplus
}
#endif
#endif
