/* A backend that adds the version of the library `shared_part` to its input. Two of them, NAMEd and linked with another
 * version each, are loaded into one process. With PYTHON it is an extension module called _run. */
#include "pteron_backend.h"
#include <string.h>

int shared_part_version(void);
/* Both plugins have a function and a variable of these names, visible to everybody. */
int plugin_calls = 0;
int plugin_version(void) { return shared_part_version(); }

static int32_t init(void *plugin, const struct pteron_init *told, void **delegate, size_t *num_outputs,
                    struct pteron_error *error) {
  (void)plugin, (void)told, (void)delegate, (void)error;
  *num_outputs = 1;
  return PTERON_OK;
}

static int32_t execute(void *delegate, const struct pteron_execute *told, const struct pteron_arg *inputs,
                       size_t input_count, struct pteron_output *outputs, size_t output_count,
                       struct pteron_error *error) {
  float *to = outputs[0].tensor.data;
  size_t i;
  (void)delegate, (void)told, (void)input_count, (void)output_count, (void)error;
  plugin_calls++;
  memcpy(to, inputs[0].tensor.data, outputs[0].tensor.nbytes);
  for (i = 0; i < outputs[0].tensor.nbytes / sizeof *to; i++)
    to[i] += (float)(100 * plugin_calls + plugin_version());
  return PTERON_OK;
}

static const struct pteron_backend BACKEND = {
    PTERON_ABI_MAJOR, sizeof(struct pteron_backend), NAME, 0, 0, init, execute, 0, 0, 0, 0, 0,
};

#ifdef PYTHON
#include <Python.h>
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_run", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__run(void) {
  PyObject *module = PyModule_Create(&MODULE);
  PyModule_AddObject(module, "backend", PyCapsule_New((void *)&BACKEND, PTERON_BACKEND_CAPSULE, NULL));
  return module;
}
#else
const struct pteron_backend *pteron_backend_v1(void) { return &BACKEND; }
#endif
