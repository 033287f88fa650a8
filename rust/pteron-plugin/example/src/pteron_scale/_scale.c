/* A backend that multiplies by a number: float32 in, float32 out, the factor in the blob as text. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#include <string.h>

#include "pteron_backend.h"

#define FLOAT32 6

struct scale {
  float factor;
};

static int32_t failed(struct pteron_error *error, const char *text) {
  struct pteron_bytes bytes = {(const uint8_t *)text, strlen(text)};
  error->set(error->host, bytes, -1);
  return PTERON_FAILED;
}

static int32_t scale_init(void *plugin, const struct pteron_init *init, void **delegate, size_t *num_outputs,
                          struct pteron_error *error) {
  char text[32];
  char *end;
  struct scale *made;
  struct pteron_bytes blob = init->processed, named;
  struct pteron_bytes key = {(const uint8_t *)"factor", 6};
  (void)plugin;
  if (init->named_data(init->host, key, &named) == PTERON_OK) blob = named;
  if (blob.len == 0 || blob.len >= sizeof text) return failed(error, "the blob is not a number");
  memcpy(text, blob.data, blob.len);
  text[blob.len] = 0;
  made = malloc(sizeof *made);
  if (made == NULL) return failed(error, "out of memory");
  made->factor = strtof(text, &end);
  if (end == text || *end != 0) {
    free(made);
    return failed(error, "the blob is not a number");
  }
  *delegate = made;
  *num_outputs = 1;
  return PTERON_OK;
}

static int32_t scale_execute(void *delegate, const struct pteron_execute *execute,
                             const struct pteron_arg *inputs, size_t input_count,
                             struct pteron_output *outputs, size_t output_count, struct pteron_error *error) {
  const struct scale *scale = delegate;
  const struct pteron_tensor *from;
  float *to;
  size_t i;
  (void)execute;
  if (input_count != 1 || output_count != 1 || inputs[0].kind != PTERON_KIND_TENSOR ||
      inputs[0].tensor.dtype != FLOAT32 || outputs[0].tensor.dtype != FLOAT32)
    return failed(error, "one float32 tensor in, one out, is all that this backend knows");
  from = &inputs[0].tensor;
  if (outputs[0].resize(&outputs[0], from->shape, (size_t)from->ndim) != PTERON_OK) return PTERON_FAILED;
  if (memcmp(from->strides, outputs[0].tensor.strides, (size_t)from->ndim * sizeof *from->strides) != 0)
    return failed(error, "input and output have different memory orders");
  to = outputs[0].tensor.data;
  for (i = 0; i < from->nbytes / sizeof *to; i++) to[i] = ((const float *)from->data)[i] * scale->factor;
  return PTERON_OK;
}

static int32_t scale_is_available(void *plugin, struct pteron_error *error) {
  (void)plugin;
  return getenv("PTERON_SCALE_IS_OFF") ? failed(error, "PTERON_SCALE_IS_OFF is set") : PTERON_OK;
}

static const struct pteron_backend BACKEND = {
    PTERON_ABI_MAJOR, sizeof(struct pteron_backend), "Scale", NULL,
    scale_is_available, scale_init, scale_execute, free,
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_scale", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__scale(void) {
  PyObject *module = PyModule_Create(&MODULE);
  PyObject *capsule = PyCapsule_New((void *)&BACKEND, PTERON_BACKEND_CAPSULE, NULL);
  if (module == NULL || capsule == NULL || PyModule_AddObject(module, "backend", capsule) < 0) return NULL;
  return module;
}
