/* A backend that multiplies by a number: float32 in, float32 out, the factor in the blob as text, or in the named
 * data "factor". A compile spec "counter" names a buffer of the model that the delegate keeps: an int64 that counts
 * calls. */
#define _POSIX_C_SOURCE 200809L
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pteron_backend.h"

#define FLOAT32 6
#define INT64 4
#define LONGEST_NAME 128

struct scale {
  float factor;
  int64_t calls;
  size_t name_len; /* of the counter; 0 where there is none */
  char name[LONGEST_NAME];
};

static int32_t failed(struct pteron_error *error, const char *text) {
  struct pteron_bytes bytes = {(const uint8_t *)text, strlen(text)};
  error->set(error->host, bytes, -1);
  return PTERON_FAILED;
}

static int is_text(struct pteron_bytes bytes, const char *text) {
  return bytes.len == strlen(text) && memcmp(bytes.data, text, bytes.len) == 0;
}

static int32_t read_factor(const struct pteron_init *init, float *factor) {
  char text[32];
  char *end;
  struct pteron_bytes blob = init->processed, named;
  struct pteron_bytes key = {(const uint8_t *)"factor", 6};
  if (init->named_data(init->host, key, &named) == PTERON_OK) blob = named;
  if (blob.len == 0 || blob.len >= sizeof text) return PTERON_FAILED;
  memcpy(text, blob.data, blob.len);
  text[blob.len] = 0;
  *factor = strtof(text, &end);
  return end == text || *end != 0 ? PTERON_FAILED : PTERON_OK;
}

static int32_t scale_init(void *plugin, const struct pteron_init *init, void **delegate, size_t *num_outputs,
                          struct pteron_error *error) {
  struct scale *made = calloc(1, sizeof *made);
  size_t i;
  (void)plugin;
  if (made == NULL) return failed(error, "out of memory");
  if (read_factor(init, &made->factor) != PTERON_OK) {
    free(made);
    return failed(error, "the blob is not a number");
  }
  for (i = 0; i < init->spec_count; i++) {
    struct pteron_bytes name = init->specs[i].value;
    if (!is_text(init->specs[i].key, "counter")) continue;
    if (name.len == 0 || name.len > LONGEST_NAME) {
      free(made);
      return failed(error, "the counter has no name, or one that is too long");
    }
    memcpy(made->name, name.data, name.len);
    made->name_len = name.len;
  }
  *delegate = made;
  *num_outputs = 1;
  return PTERON_OK;
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Two events for whoever traces the call: the debug handle 7, and a part of it by name. */
static void report(const struct pteron_execute *execute, uint64_t start_ns, size_t count) {
  struct pteron_event event = {0};
  char metadata[32];
  if (execute->struct_size < sizeof *execute || execute->event == NULL) return;
  event.struct_size = sizeof event;
  event.id = 7;
  event.start_ns = start_ns;
  event.end_ns = now_ns();
  execute->event(execute->host, &event);
  event.name.data = (const uint8_t *)"multiply";
  event.name.len = 8;
  event.metadata.data = (const uint8_t *)metadata;
  event.metadata.len = (size_t)snprintf(metadata, sizeof metadata, "%zu elements", count);
  execute->event(execute->host, &event);
}

static int32_t scale_execute(void *delegate, const struct pteron_execute *execute,
                             const struct pteron_arg *inputs, size_t input_count,
                             struct pteron_output *outputs, size_t output_count, struct pteron_error *error) {
  struct scale *scale = delegate;
  const struct pteron_tensor *from;
  uint64_t start_ns = now_ns();
  float *to;
  size_t i, count;
  if (input_count != 1 || output_count != 1 || inputs[0].kind != PTERON_KIND_TENSOR ||
      inputs[0].tensor.dtype != FLOAT32 || outputs[0].tensor.dtype != FLOAT32)
    return failed(error, "one float32 tensor in, one out, is all that this backend knows");
  from = &inputs[0].tensor;
  if (outputs[0].resize(&outputs[0], from->shape, (size_t)from->ndim) != PTERON_OK) return PTERON_FAILED;
  if (memcmp(from->strides, outputs[0].tensor.strides, (size_t)from->ndim * sizeof *from->strides) != 0)
    return failed(error, "input and output have different memory orders");
  to = outputs[0].tensor.data;
  count = from->nbytes / sizeof *to;
  for (i = 0; i < count; i++) to[i] = ((const float *)from->data)[i] * scale->factor;
  scale->calls++;
  report(execute, start_ns, count);
  return PTERON_OK;
}

static int32_t scale_has_state(void *delegate) { return ((const struct scale *)delegate)->name_len > 0; }

static int32_t scale_get_state(void *delegate, pteron_give_buffer give, void *host, struct pteron_error *error) {
  struct scale *scale = delegate;
  struct pteron_bytes name = {(const uint8_t *)scale->name, scale->name_len};
  struct pteron_tensor tensor = {&scale->calls, INT64, 0, NULL, NULL, sizeof scale->calls};
  (void)error;
  return give(host, name, &tensor);
}

/* Names, dtypes and shapes are those that scale_get_state gives: the host has checked them. */
static int32_t scale_set_state(void *delegate, const struct pteron_bytes *names,
                               const struct pteron_tensor *tensors, size_t count, struct pteron_error *error) {
  struct scale *scale = delegate;
  int64_t calls;
  (void)names;
  if (count != 1) return failed(error, "there is one buffer");
  memcpy(&calls, tensors[0].data, sizeof calls);
  if (calls < 0) return failed(error, "the number of calls is negative");
  scale->calls = calls;
  return PTERON_OK;
}

static int32_t scale_reset_state(void *delegate, struct pteron_error *error) {
  (void)error;
  ((struct scale *)delegate)->calls = 0;
  return PTERON_OK;
}

static int32_t scale_is_available(void *plugin, struct pteron_error *error) {
  (void)plugin;
  return getenv("PTERON_SCALE_IS_OFF") ? failed(error, "PTERON_SCALE_IS_OFF is set") : PTERON_OK;
}

static const struct pteron_backend BACKEND = {
    PTERON_ABI_MAJOR, sizeof(struct pteron_backend), "Scale", NULL,
    scale_is_available, scale_init, scale_execute, free,
    scale_has_state, scale_get_state, scale_set_state, scale_reset_state,
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_scale", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__scale(void) {
  PyObject *module = PyModule_Create(&MODULE);
  PyObject *capsule = PyCapsule_New((void *)&BACKEND, PTERON_BACKEND_CAPSULE, NULL);
  if (module == NULL || capsule == NULL || PyModule_AddObject(module, "backend", capsule) < 0) return NULL;
  return module;
}
