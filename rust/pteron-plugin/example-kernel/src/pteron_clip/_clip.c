/* shapes::clip_rows(Tensor x, float most, int[]? keep=None) -> Tensor: scales the rows of float32 matrices whose norm
 * is above `most` down to it; rows whose numbers are in `keep` stay as they are. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <string.h>

#include "pteron_backend.h"

#define FLOAT32 6

static int32_t failed(struct pteron_error *error, const char *text) {
  struct pteron_bytes bytes = {(const uint8_t *)text, strlen(text)};
  error->set(error->host, bytes, -1);
  return PTERON_FAILED;
}

static int is_kept(const struct pteron_value *keep, int64_t row) {
  size_t i;
  for (i = 0; i < keep->item_count; i++)
    if (((const int64_t *)keep->items)[i] == row) return 1;
  return 0;
}

static int32_t clip_rows(void *plugin, const struct pteron_call *call, const struct pteron_value *inputs,
                         size_t input_count, struct pteron_output *outputs, size_t output_count,
                         struct pteron_error *error) {
  const struct pteron_tensor *x;
  const float *from;
  float *to;
  double most;
  int64_t row, column, rows, columns;
  (void)plugin;
  (void)call;
  /* The program comes from a file: nothing about the arguments is certain. */
  if (input_count != 3 || output_count != 1) return failed(error, "expected x, most, keep and one output");
  if (inputs[0].arg.kind != PTERON_KIND_TENSOR || inputs[1].arg.kind != PTERON_KIND_DOUBLE ||
      (inputs[2].arg.kind != PTERON_KIND_NONE && inputs[2].arg.kind != PTERON_KIND_INTS))
    return failed(error, "expected a tensor, a float, and integers or None");
  x = &inputs[0].arg.tensor;
  if (x->dtype != FLOAT32 || x->ndim != 2 || outputs[0].tensor.dtype != FLOAT32 || outputs[0].tensor.ndim != 2)
    return failed(error, "expected float32 matrices");
  if (outputs[0].resize(&outputs[0], x->shape, 2) != PTERON_OK) return PTERON_FAILED;
  rows = x->shape[0];
  columns = x->shape[1];
  if (x->strides[1] != 1 || outputs[0].tensor.strides[1] != 1)
    if (columns > 1) return failed(error, "expected row-major matrices");
  most = inputs[1].arg.real;
  for (row = 0; row < rows; row++) {
    double sum = 0, scale = 1;
    from = (const float *)x->data + row * x->strides[0];
    to = (float *)outputs[0].tensor.data + row * outputs[0].tensor.strides[0];
    for (column = 0; column < columns; column++) sum += (double)from[column] * from[column];
    if (!is_kept(&inputs[2], row) && sqrt(sum) > most) scale = most / sqrt(sum);
    for (column = 0; column < columns; column++) to[column] = (float)(from[column] * scale);
  }
  return PTERON_OK;
}

static const struct pteron_kernel KERNEL = {
    PTERON_ABI_MAJOR, sizeof(struct pteron_kernel), "shapes::clip_rows", NULL, clip_rows,
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_clip", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__clip(void) {
  PyObject *module = PyModule_Create(&MODULE);
  PyObject *capsule = PyCapsule_New((void *)&KERNEL, PTERON_KERNEL_CAPSULE, NULL);
  if (module == NULL || capsule == NULL || PyModule_AddObject(module, "kernel", capsule) < 0) return NULL;
  return module;
}
