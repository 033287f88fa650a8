/* What a caller can do wrong and the library can notice ends in an error with a text, and nothing else happens: built with
 * AddressSanitizer. Arguments: linear_relu.pte, a program with a counter as state, a folder to write to. */
#include "expect.h"

static const char *LINEAR, *COUNTER, *FOLDER;

static void handles(void) {
  pteron_program *program = opened(LINEAR), *stale, *unset = (pteron_program *)(uintptr_t)0x7fff12345678;
  pteron_method *method = loaded(program, "forward");
  struct pteron_arg x = x_argument();
  size_t count;
  int on_stack = 0;

  REFUSED(MISUSE, "the handle of a method is NULL", pteron_method_execute(NULL, &x, 1, NULL));
  REFUSED(MISUSE, "the handle of a program is NULL", pteron_method_load(NULL, "forward", NULL, &method));
  TRUE(method == NULL); /* what a failed call was to make is NULL */
  method = loaded(program, "forward");
  REFUSED(MISUSE, "stands for nothing", pteron_program_name_count(unset, PTERON_LIST_METHODS, NULL, &count));
  REFUSED(MISUSE, "stands for nothing",
          pteron_program_name_count((pteron_program *)(void *)&on_stack, PTERON_LIST_METHODS, NULL, &count));
  REFUSED(MISUSE, "expected a method; got a program", pteron_method_execute((pteron_method *)(void *)program, &x, 1, NULL));
  REFUSED(MISUSE, "expected a program; got a method", pteron_program_free((pteron_program *)(void *)method));

  /* Freed, and freed twice. A method outlives the handle of its program. */
  stale = program;
  WORKS(pteron_program_free(program));
  REFUSED(MISUSE, "one that was freed", pteron_program_free(stale));
  REFUSED(MISUSE, "one that was freed", pteron_program_name_count(stale, PTERON_LIST_METHODS, NULL, &count));
  program = opened(LINEAR);
  TRUE(program != stale); /* no handle comes twice */
  WORKS(pteron_method_execute(method, &x, 1, NULL));
  WORKS(pteron_method_free(method));
  REFUSED(MISUSE, "one that was freed", pteron_method_execute(method, &x, 1, NULL));
  REFUSED(MISUSE, "one that was freed", pteron_method_cancel(method));
  REFUSED(MISUSE, "one that was freed", pteron_method_free(method));
  WORKS(pteron_method_free(NULL));
  WORKS(pteron_program_free(NULL));
  WORKS(pteron_runtime_free(NULL));
  WORKS(pteron_program_free(program));
}

static void pointers(void) {
  pteron_program *program = opened(LINEAR);
  pteron_method *method = loaded(program, "forward");
  struct pteron_arg x = x_argument();
  struct pteron_spec spec;
  struct pteron_bytes data;
  const char *name;
  char odd[32];
  PTERON_INIT(&spec);

  REFUSED(MISUSE, "argument 'path': the argument is NULL", pteron_program_open(NULL, &program));
  program = opened(LINEAR);
  REFUSED(MISUSE, "argument 'program': the argument is NULL", pteron_program_open(LINEAR, NULL));
  REFUSED(MISUSE, "argument 'method'", pteron_method_load(program, "forward", NULL, NULL));
  REFUSED(MISUSE, "argument 'name'", pteron_method_load(program, NULL, NULL, &method));
  method = loaded(program, "forward");
  REFUSED(MISUSE, "argument 'inputs'", pteron_method_execute(method, NULL, 1, NULL));
  WORKS(pteron_method_execute(method, &x, 1, NULL));
  REFUSED(MISUSE, "argument 'output'", pteron_method_output(method, 0, NULL));
  REFUSED(MISUSE, "multiple of", pteron_method_output(method, 0, (struct pteron_arg *)(void *)(odd + 1)));
  REFUSED(MISUSE, "beyond what memory can hold", pteron_method_execute(method, &x, (size_t)-1 / 2, NULL));
  REFUSED(MISUSE, "the string is not UTF-8", pteron_method_load(program, "\xff\xfe", NULL, &method));
  method = loaded(program, "forward");

  REFUSED(METHOD_NOT_FOUND, "PTERON_LIST_METHODS lists", pteron_method_load(program, "backward", NULL, &method));
  REFUSED(METHOD_NOT_FOUND, "backward", pteron_program_spec(program, "backward", PTERON_INPUTS, 0, &spec));
  REFUSED(MISUSE, "less than 1; got 1", pteron_program_spec(program, "forward", PTERON_INPUTS, 1, &spec));
  REFUSED(MISUSE, "PTERON_BUFFERS; got 7", pteron_program_spec(program, "forward", 7, 0, &spec));
  REFUSED(MISUSE, "PTERON_LIST_ constants; got -1", pteron_program_name(program, -1, NULL, 0, &name));
  REFUSED(MISUSE, "less than 1; got 9", pteron_program_name(program, PTERON_LIST_METHODS, NULL, 9, &name));
  REFUSED(INPUT, "no data of this name", pteron_program_named_data(program, "tokenizer", &data));
  WORKS(pteron_program_named_data(program, "pteron.interface", &data));
  TRUE(data.len > 0 && data.data[0] == '{');
  WORKS(pteron_program_free(program));
}

static void struct_sizes(void) {
  pteron_program *program = opened(LINEAR);
  pteron_method *method;
  struct {
    struct pteron_method_options known;
    uint64_t newer;
  } wide;
  struct pteron_method_options options;
  struct pteron_limits limits;
  struct pteron_load_options load;
  struct pteron_source source = pteron_source_path(LINEAR);
  struct pteron_spec *spec = calloc(1, 16); /* a caller that knows struct_size, kind and name */

  PTERON_INIT(&options);
  options.struct_size = 0;
  REFUSED(MISUSE, "struct_size is not set", pteron_method_load(program, "forward", &options, &method));
  options.struct_size = 1000000;
  REFUSED(MISUSE, "struct_size is not set", pteron_method_load(program, "forward", &options, &method));
  memset(&wide, 0, sizeof wide);
  wide.known.struct_size = sizeof wide;
  WORKS(pteron_method_load(program, "forward", &wide.known, &method));
  wide.newer = 1;
  REFUSED(MISUSE, "does not know", pteron_method_load(program, "forward", &wide.known, &method));

  TRUE(spec != NULL);
  spec->struct_size = 16;
  WORKS(pteron_program_spec(program, "forward", PTERON_INPUTS, 0, spec));
  TRUE(spec->kind == PTERON_KIND_TENSOR && strcmp(spec->name, "input") == 0);
  free(spec);

  PTERON_INIT(&load);
  PTERON_INIT(&limits);
  limits.struct_size = 3;
  load.limits = &limits;
  REFUSED(MISUSE, "options.limits", pteron_program_load(NULL, &source, &load, &program));
  TRUE(program == NULL);
}

static int released;
static void release(void *host) {
  TRUE(host == &released);
  released++;
}

/* The whole file at `path`; the caller frees it. */
static char *contents(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  char *bytes;
  long end;
  TRUE(file != NULL && fseek(file, 0, SEEK_END) == 0 && (end = ftell(file)) > 0);
  rewind(file);
  *size = (size_t)end;
  bytes = malloc(*size);
  TRUE(bytes != NULL && fread(bytes, 1, *size, file) == *size);
  fclose(file);
  return bytes;
}

static void sources(void) {
  size_t size, cut;
  char *bytes = contents(LINEAR, &size);
  struct pteron_source source = pteron_source_bytes(bytes, size);
  struct pteron_arg x = x_argument();
  struct pteron_load_options options;
  struct pteron_limits limits;
  pteron_program *program;
  pteron_method *method;

  /* Copied: the caller's bytes may go. */
  WORKS(pteron_program_load(NULL, &source, NULL, &program));
  memset(bytes, 0, size);
  free(bytes);
  method = loaded(program, "forward");
  WORKS(pteron_method_execute(method, &x, 1, NULL));
  WORKS(pteron_method_free(method));
  WORKS(pteron_program_free(program));

  /* Lent: released once, when the last thing that needs them goes, or when the load fails. */
  bytes = contents(LINEAR, &size);
  source = pteron_source_bytes(bytes, size);
  source.release = release;
  source.host = &released;
  WORKS(pteron_program_load(NULL, &source, NULL, &program));
  method = loaded(program, "forward");
  WORKS(pteron_program_free(program));
  TRUE(released == 0);
  WORKS(pteron_method_free(method));
  TRUE(released == 1);
  for (cut = 0; cut < size; cut += size / 40) {
    int32_t code;
    source.size = cut;
    code = pteron_program_load(NULL, &source, NULL, &program);
    TRUE(code == PTERON_ERROR_PROGRAM && program == NULL && pteron_error_text()[0] != 0);
  }
  TRUE(released == 42 || released == 41);
  released = 0;

  source.path = LINEAR;
  REFUSED(MISUSE, "a path and data", pteron_program_load(NULL, &source, NULL, &program));
  TRUE(released == 0); /* misuse takes nothing over */
  source = pteron_source_path(NULL);
  REFUSED(MISUSE, "neither path nor data", pteron_program_load(NULL, &source, NULL, &program));
  free(bytes);

  REFUSED(NOT_FOUND, "no-such-file", pteron_program_open("no-such-file", &program));
  TRUE(pteron_error_field(PTERON_FIELD_HINT) != NULL && pteron_error_field(PTERON_FIELD_OPERATOR) == NULL);
  PTERON_INIT(&options);
  PTERON_INIT(&limits);
  limits.rank = 1;
  options.limits = &limits;
  source = pteron_source_path(LINEAR);
  REFUSED(LIMIT_EXCEEDED, "rank of struct pteron_limits", pteron_program_load(NULL, &source, &options, &program));
}

static void inputs(void) {
  pteron_program *program = opened(LINEAR);
  pteron_method *method = loaded(program, "forward");
  struct pteron_arg x, two[2];
  int64_t shape[2] = {2, 4}, strides[2] = {4, 1};
  struct pteron_execute_options options;
  struct pteron_tensor buffer;
  float y[6], wide[16];

#define EXECUTE() pteron_method_execute(method, &x, 1, NULL)
  x = x_argument();
  two[0] = two[1] = x;
  REFUSED(INPUT, "forward", pteron_method_execute(method, two, 2, NULL));
  REFUSED(INPUT, "forward", pteron_method_execute(method, NULL, 0, NULL));
  x.kind = 77;
  REFUSED(MISUSE, "no such kind of input", EXECUTE());
  x = x_argument();
  x.tensor.dtype = 12;
  REFUSED(MISUSE, "no such element type", EXECUTE());
  x = x_argument();
  x.tensor.dtype = PTERON_INT32;
  REFUSED(INPUT_TYPE, "int32", EXECUTE());
  REFUSED(INPUT_TYPE, "pteron_program_spec tells", (x = pteron_arg_int(1), EXECUTE()));
  x = x_argument();
  x.tensor.nbytes = sizeof X - 1;
  REFUSED(MISUSE, "32 bytes for float32 of shape [2, 4]; got 31 bytes", EXECUTE());
  x.tensor.nbytes = sizeof X + 4;
  REFUSED(MISUSE, "got 36 bytes", EXECUTE());
  x = x_argument();
  x.tensor.data = NULL;
  REFUSED(MISUSE, "data is NULL", EXECUTE());
  x = x_argument();
  x.tensor.ndim = -1;
  REFUSED(MISUSE, "number of dimensions", EXECUTE());
  x.tensor.ndim = 1000;
  REFUSED(MISUSE, "number of dimensions", EXECUTE());
  x.tensor.ndim = 2;
  x.tensor.shape = NULL;
  REFUSED(MISUSE, "inputs[0].shape", EXECUTE());
  x.tensor.shape = shape;
  shape[0] = -2;
  REFUSED(MISUSE, "an extent of the shape is negative", EXECUTE());
  shape[0] = INT64_MAX;
  TRUE(EXECUTE() != PTERON_OK && pteron_error_code() != PTERON_ERROR_INTERNAL);
  shape[0] = 2;
  shape[1] = 3;
  x.tensor.nbytes = 24;
  REFUSED(INPUT, "float32[2, 3]", EXECUTE());
  shape[1] = 4;
  x.tensor.nbytes = 32;
  x.tensor.strides = strides;
  WORKS(EXECUTE());
  strides[0] = 5; /* nine elements are reached: one is beyond nbytes */
  REFUSED(MISUSE, "expected 36 bytes", EXECUTE());
  strides[0] = -4;
  REFUSED(MISUSE, "a stride is negative", EXECUTE());
  strides[0] = INT64_MAX;
  REFUSED(MISUSE, "less than memory can hold", EXECUTE());
  strides[0] = strides[1] = 0; /* one element for all */
  x.tensor.nbytes = 4;
  WORKS(EXECUTE());

  /* Memory for outputs. */
  x = x_argument();
  PTERON_INIT(&options);
  shape[1] = 3;
  buffer = pteron_tensor_of(PTERON_FLOAT32, y, sizeof y, shape, 2);
  options.outputs = &buffer;
  options.output_count = 1;
#define EXECUTE_INTO() pteron_method_execute(method, &x, 1, &options)
  WORKS(EXECUTE_INTO());
  buffer.nbytes = sizeof y - 4;
  REFUSED(MISUSE, "options.outputs[0]", EXECUTE_INTO());
  buffer.nbytes = sizeof y;
  buffer.strides = strides;
  strides[0] = 4;
  strides[1] = 1;
  buffer.nbytes = sizeof wide;
  buffer.data = wide;
  REFUSED(MISUSE, "not dense and row-major", EXECUTE_INTO());
  shape[0] = 1;
  buffer = pteron_tensor_of(PTERON_FLOAT32, y, 12, shape, 2);
  TRUE(EXECUTE_INTO() == PTERON_ERROR_INPUT);
  shape[0] = 2;
  buffer = pteron_tensor_of(PTERON_FLOAT64, wide, 48, shape, 2);
  TRUE(EXECUTE_INTO() == PTERON_ERROR_INPUT_TYPE);
  WORKS(pteron_method_free(method));
  WORKS(pteron_program_free(program));
}

static void outputs(void) {
  pteron_program *program = opened(LINEAR);
  pteron_method *method = loaded(program, "forward"), *other = loaded(program, "forward");
  struct pteron_arg x = x_argument(), y, wrong = pteron_arg_none();
  int64_t shape[2] = {2, 3};
  struct pteron_execute_options options;
  struct pteron_tensor buffer;
  size_t count;

  REFUSED(MISUSE, "there are no outputs", pteron_method_output(method, 0, &y));
  WORKS(pteron_method_execute(method, &x, 1, NULL));
  WORKS(pteron_method_output_count(method, &count));
  TRUE(count == 1);
  REFUSED(MISUSE, "less than 1; got 1", pteron_method_output(method, 1, &y));
  WORKS(pteron_method_output(method, 0, &y));
  TRUE(y.tensor.ndim == 2 && y.tensor.shape[0] == 2 && y.tensor.shape[1] == 3 && y.tensor.nbytes == 24);
  /* The outputs of a method are memory of that method: no call may compute into them. */
  PTERON_INIT(&options);
  buffer = pteron_tensor_of(PTERON_FLOAT32, y.tensor.data, 24, shape, 2);
  options.outputs = &buffer;
  options.output_count = 1;
  REFUSED(MISUSE, "lies in an output of the last call", pteron_method_execute(method, &x, 1, &options));
  /* They ended with that call. */
  REFUSED(MISUSE, "there are no outputs", pteron_method_output(method, 0, &y));
  WORKS(pteron_method_execute(method, &x, 1, NULL));
  TRUE(pteron_method_execute(method, &wrong, 1, NULL) == PTERON_ERROR_INPUT_TYPE);
  REFUSED(MISUSE, "there are no outputs", pteron_method_output_count(method, &count));
  WORKS(pteron_method_execute(method, &x, 1, NULL));
  WORKS(pteron_method_reset_state(method));
  REFUSED(MISUSE, "there are no outputs", pteron_method_output(method, 0, &y));
  /* Another session has its own. */
  WORKS(pteron_method_execute(method, &x, 1, NULL));
  WORKS(pteron_method_output(method, 0, &y));
  WORKS(pteron_method_execute(other, &x, 1, NULL));
  TRUE(((const float *)y.tensor.data)[1] >= 0);
  WORKS(pteron_method_free(method));
  WORKS(pteron_method_free(other));
  WORKS(pteron_program_free(program));
}

static int32_t keep(void *host, struct pteron_bytes name, const struct pteron_tensor *tensor) {
  TRUE(name.len == 5 && memcmp(name.data, "total", 5) == 0 && tensor->nbytes == 2 * sizeof(float));
  memcpy(host, tensor->data, tensor->nbytes);
  return PTERON_OK;
}

static int32_t reenter(void *host, struct pteron_bytes name, const struct pteron_tensor *tensor) {
  (void)name, (void)tensor;
  REFUSED(METHOD_BUSY, "load a method for each thread", pteron_method_reset_state(host));
  return 5;
}

static void state(void) {
  pteron_program *program = opened(COUNTER);
  pteron_method *method = loaded(program, "forward");
  const float one[2] = {1, 1}, seven[2] = {7, 8};
  const int64_t shape[1] = {2};
  struct pteron_arg x = pteron_arg_tensor(PTERON_FLOAT32, one, sizeof one, shape, 1);
  struct pteron_tensor tensor = pteron_tensor_of(PTERON_FLOAT32, seven, sizeof seven, shape, 1);
  const char *total = "total", *other = "other", *none = NULL;
  float got[2], first[2];
  int32_t is_stateful;
  char path[4096];

  WORKS(pteron_method_is_stateful(method, &is_stateful));
  TRUE(is_stateful == 1);
  WORKS(pteron_method_get_state(method, keep, first));
  WORKS(pteron_method_execute(method, &x, 1, NULL));
  WORKS(pteron_method_get_state(method, keep, got));
  TRUE(got[0] == first[0] + 1 && got[1] == first[1] + 1);
  REFUSED(MISUSE, "argument 'give'", pteron_method_get_state(method, NULL, NULL));
  REFUSED(CANCELLED, "total", pteron_method_get_state(method, reenter, method));
  REFUSED(INPUT, "other", pteron_method_set_state(method, &other, &tensor, 1));
  REFUSED(MISUSE, "names[0]", pteron_method_set_state(method, &none, &tensor, 1));
  REFUSED(MISUSE, "argument 'tensors'", pteron_method_set_state(method, &total, NULL, 1));
  tensor.dtype = PTERON_INT32;
  TRUE(pteron_method_set_state(method, &total, &tensor, 1) != PTERON_OK);
  tensor.dtype = PTERON_FLOAT32;
  WORKS(pteron_method_set_state(method, &total, &tensor, 1));
  WORKS(pteron_method_get_state(method, keep, got));
  TRUE(got[0] == 7 && got[1] == 8);

  snprintf(path, sizeof path, "%s/state.ptd", FOLDER);
  REFUSED(NOT_FOUND, "state.ptd", pteron_method_load_state(method, path));
  WORKS(pteron_method_save_state(method, path));
  WORKS(pteron_method_reset_state(method));
  WORKS(pteron_method_get_state(method, keep, got));
  TRUE(got[0] == first[0]);
  WORKS(pteron_method_load_state(method, path));
  WORKS(pteron_method_get_state(method, keep, got));
  TRUE(got[0] == 7);
  TRUE(pteron_method_load_state(method, LINEAR) != PTERON_OK);
  WORKS(pteron_method_free(method));
  WORKS(pteron_program_free(program));
}

static int32_t unusable(void *plugin, struct pteron_error *error) {
  static const char text[] = "no such device here";
  struct pteron_bytes bytes = {(const uint8_t *)text, sizeof text - 1};
  (void)plugin;
  error->set(error->host, bytes, -1);
  return PTERON_FAILED;
}

static int32_t init(void *plugin, const struct pteron_init *told, void **delegate, size_t *num_outputs,
                    struct pteron_error *error) {
  (void)plugin, (void)told, (void)delegate, (void)num_outputs, (void)error;
  return PTERON_FAILED;
}

static int32_t execute(void *delegate, const struct pteron_execute *told, const struct pteron_arg *inputs,
                       size_t input_count, struct pteron_output *outputs, size_t output_count,
                       struct pteron_error *error) {
  (void)delegate, (void)told, (void)inputs, (void)input_count, (void)outputs, (void)output_count, (void)error;
  return PTERON_FAILED;
}

static void runtimes(void) {
  struct pteron_runtime_options options;
  struct pteron_backend backend;
  pteron_runtime *runtime;
  int32_t is_available;

  PTERON_INIT(&options);
  options.num_threads = 1;
  WORKS(pteron_runtime_new(&options, &runtime));
  REFUSED(MISUSE, "argument 'runtime'", pteron_runtime_new(NULL, NULL));
  memset(&backend, 0, sizeof backend);
  TRUE(pteron_runtime_register_backend(runtime, NULL, 0) != PTERON_OK);
  TRUE(pteron_runtime_register_backend(runtime, &backend, 0) != PTERON_OK);
  backend.abi_major = PTERON_ABI_MAJOR;
  backend.struct_size = sizeof backend;
  TRUE(pteron_runtime_register_backend(runtime, &backend, 0) != PTERON_OK); /* no name, no functions */
  backend.name = "Mine";
  backend.init = init;
  backend.execute = execute;
  backend.is_available = unusable;
  WORKS(pteron_runtime_register_backend(runtime, &backend, 0));
  REFUSED(DELEGATE, "set replace", pteron_runtime_register_backend(runtime, &backend, 0));
  WORKS(pteron_runtime_register_backend(runtime, &backend, 1));
  WORKS(pteron_runtime_has_backend(runtime, "Mine", &is_available));
  TRUE(is_available == 0);
  TRUE(pteron_runtime_register_kernel(runtime, NULL, 0) != PTERON_OK);
  WORKS(pteron_runtime_free(runtime));
  REFUSED(MISUSE, "one that was freed", pteron_runtime_has_backend(runtime, "Mine", &is_available));
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  LINEAR = argv[1];
  COUNTER = argv[2];
  FOLDER = argv[3];
  TRUE(pteron_error_code() == PTERON_OK && pteron_error_text()[0] == 0 && pteron_error_field(0) == NULL);
  TRUE(pteron_error_field(-1) == NULL && pteron_error_field(99) == NULL && pteron_error_name(99) == NULL);
  TRUE(pteron_api_version() == PTERON_API_MAJOR * 65536 + PTERON_API_MINOR);
  handles();
  pointers();
  struct_sizes();
  sources();
  inputs();
  outputs();
  state();
  runtimes();
  printf("all of it was noticed\n");
  return 0;
}
