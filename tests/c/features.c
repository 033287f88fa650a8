/* What the examples do not show: data files, named data, kernels and options in C, shared state, runtimes of their own, outputs
 * in the caller's memory, outputs as inputs. Arguments: a program, its data file, one with the operator mine::double, one with
 * two methods that share the buffer "total", one with a delegate of the backend "Keeps". */
#include "expect.h"

static const int64_t TWO[1] = {2};

static struct pteron_arg pair(const float *data) {
  return pteron_arg_tensor(PTERON_FLOAT32, data, 2 * sizeof *data, TWO, 1);
}

static void data_files(const char *path, const char *data_path) {
  struct pteron_source source = pteron_source_path(path), data = pteron_source_path(data_path);
  const struct pteron_source *files[1];
  struct pteron_load_options options;
  const float x[2] = {1, 1};
  struct pteron_arg input = pair(x), y;
  pteron_program *program;
  pteron_method *method;

  PTERON_INIT(&options);
  files[0] = &data;
  options.data_files = files;
  options.data_file_count = 1;
  source.is_read = 1;
  WORKS(pteron_program_load(NULL, &source, &options, &program));
  method = loaded(program, "forward");
  WORKS(pteron_method_execute(method, &input, 1, NULL));
  WORKS(pteron_method_output(method, 0, &y));
  TRUE(y.tensor.nbytes == 8 && ((const float *)y.tensor.data)[0] == 1 && ((const float *)y.tensor.data)[1] == 2);
  WORKS(pteron_method_free(method));
  WORKS(pteron_program_free(program));

  data = pteron_source_path(path);
  TRUE(pteron_program_load(NULL, &source, &options, &program) == PTERON_ERROR_PROGRAM ||
       pteron_error_code() == PTERON_ERROR_EXTERNAL_DATA);
  options.data_file_count = 0;
  WORKS(pteron_program_load(NULL, &source, &options, &program));
  REFUSED(EXTERNAL_DATA, "data_files of struct pteron_load_options", pteron_method_load(program, "forward", NULL, &method));
  WORKS(pteron_program_free(program));
}

/* --- a kernel --- */

static int32_t twice(void *plugin, const struct pteron_call *call, const struct pteron_value *inputs, size_t input_count,
                     struct pteron_output *outputs, size_t output_count, struct pteron_error *error) {
  const struct pteron_tensor *x = &inputs[0].arg.tensor;
  size_t i;
  (void)plugin, (void)call, (void)error;
  if (input_count != 1 || output_count != 1 || inputs[0].arg.kind != PTERON_KIND_TENSOR ||
      x->dtype != PTERON_FLOAT32 || outputs[0].tensor.dtype != PTERON_FLOAT32)
    return PTERON_FAILED;
  if (outputs[0].resize(&outputs[0], x->shape, (size_t)x->ndim) != PTERON_OK) return PTERON_FAILED;
  for (i = 0; i < x->nbytes / sizeof(float); i++)
    ((float *)outputs[0].tensor.data)[i] = 2 * ((const float *)x->data)[i];
  return PTERON_OK;
}

static const struct pteron_kernel TWICE = {PTERON_ABI_MAJOR, sizeof TWICE, "mine::double", NULL, twice};

static void kernels(const char *path) {
  struct pteron_runtime_options runtime_options;
  struct pteron_source source = pteron_source_path(path);
  struct pteron_execute_options options;
  struct pteron_tensor into;
  struct pteron_arg input, y;
  pteron_runtime *runtime;
  pteron_program *program;
  pteron_method *method;
  float x[2] = {3, 4}, own[2] = {0, 0};
  const char *name;
  size_t count;

  PTERON_INIT(&runtime_options);
  runtime_options.num_threads = 2;
  WORKS(pteron_runtime_new(&runtime_options, &runtime));
  WORKS(pteron_program_load(runtime, &source, NULL, &program));
  REFUSED(MISSING_OPERATOR, "mine::double", pteron_method_load(program, "forward", NULL, &method));
  WORKS(pteron_runtime_register_kernel(runtime, &TWICE, 0));
  method = loaded(program, "forward");
  WORKS(pteron_runtime_free(runtime)); /* the program keeps it */
  WORKS(pteron_program_name_count(program, PTERON_LIST_OPERATORS, "forward", &count));
  WORKS(pteron_program_name(program, PTERON_LIST_OPERATORS, "forward", 0, &name));
  TRUE(count == 1 && strncmp(name, "mine::double", 12) == 0);

  input = pair(x);
  WORKS(pteron_method_execute(method, &input, 1, NULL));
  WORKS(pteron_method_output(method, 0, &y));
  TRUE(((const float *)y.tensor.data)[0] == 6 && ((const float *)y.tensor.data)[1] == 8);
  /* An output as the next input, again and again. */
  WORKS(pteron_method_execute(method, &y, 1, NULL));
  WORKS(pteron_method_output(method, 0, &y));
  TRUE(((const float *)y.tensor.data)[0] == 12 && ((const float *)y.tensor.data)[1] == 16);

  PTERON_INIT(&options);
  into = pteron_tensor_of(PTERON_FLOAT32, own, sizeof own, TWO, 1);
  options.outputs = &into;
  options.output_count = 1;
  options.num_threads = 1;
  WORKS(pteron_method_execute(method, &y, 1, &options));
  TRUE(own[0] == 24 && own[1] == 32);
  WORKS(pteron_method_output(method, 0, &y));
  TRUE(y.tensor.data == own);
  into.data = x; /* an output may lie where an input does */
  WORKS(pteron_method_execute(method, &input, 1, &options));
  TRUE(x[0] == 6 && x[1] == 8);
  WORKS(pteron_method_free(method));
  WORKS(pteron_program_free(program));
}

/* --- methods that share state --- */

static int32_t keep(void *host, struct pteron_bytes name, const struct pteron_tensor *tensor) {
  (void)name;
  memcpy(host, tensor->data, 2 * sizeof(float));
  return PTERON_OK;
}

static void shared_state(const char *path) {
  const char *const names[2] = {"forward", "second"}, *const twice_named[2] = {"second", "second"};
  pteron_program *program = opened(path);
  pteron_method *methods[2];
  const float one[2] = {1, 1};
  struct pteron_arg x = pair(one);
  struct pteron_spec spec;
  float first[2], second[2];

  PTERON_INIT(&spec);
  WORKS(pteron_program_spec(program, "second", PTERON_BUFFERS, 0, &spec));
  TRUE(strcmp(spec.name, "total") == 0 && spec.ndim == 1 && spec.shape[0] == 2 && spec.least[0] == 2);
  WORKS(pteron_methods_load(program, names, 2, NULL, methods));
  WORKS(pteron_method_execute(methods[0], &x, 1, NULL));
  WORKS(pteron_method_execute(methods[1], &x, 1, NULL));
  WORKS(pteron_method_get_state(methods[0], keep, first));
  WORKS(pteron_method_get_state(methods[1], keep, second));
  TRUE(first[0] == 12 && second[0] == 12);
  WORKS(pteron_method_free(methods[0]));
  WORKS(pteron_method_execute(methods[1], &x, 1, NULL));
  WORKS(pteron_method_free(methods[1]));
  REFUSED(INPUT, "named twice", pteron_methods_load(program, twice_named, 2, NULL, methods));
  TRUE(methods[0] == NULL && methods[1] == NULL);
  WORKS(pteron_program_free(program));
}

/* --- options of a backend --- */

static int64_t told_number;
static int told_text, alive;

static int32_t init(void *plugin, const struct pteron_init *told, void **delegate, size_t *num_outputs,
                    struct pteron_error *error) {
  size_t i;
  (void)plugin, (void)error;
  for (i = 0; i < told->option_count; i++) {
    const struct pteron_option *option = &told->options[i];
    if (option->kind == 1) told_number = option->number;
    if (option->kind == 2) told_text = option->text.len == 4 && memcmp(option->text.data, "fast", 4) == 0;
  }
  alive++;
  *delegate = &alive;
  *num_outputs = 1;
  return PTERON_OK;
}

static int32_t execute(void *delegate, const struct pteron_execute *told, const struct pteron_arg *inputs,
                       size_t input_count, struct pteron_output *outputs, size_t output_count,
                       struct pteron_error *error) {
  (void)delegate, (void)told, (void)error, (void)input_count, (void)output_count;
  memcpy(outputs[0].tensor.data, inputs[0].tensor.data, inputs[0].tensor.nbytes);
  return PTERON_OK;
}

static void destroy(void *delegate) { --*(int *)delegate; }

static void backend_options(const char *path) {
  const struct pteron_backend keeps = {PTERON_ABI_MAJOR, sizeof keeps, "Keeps", NULL, NULL, init, execute, destroy, NULL,
                                       NULL, NULL, NULL};
  struct pteron_backend_option given[2];
  struct pteron_method_options options;
  const float one[2] = {1, 5};
  struct pteron_arg x = pair(one), y;
  pteron_program *program = opened(path);
  pteron_method *method;

  REFUSED(MISSING_BACKEND, "pteron_runtime_register_backend", pteron_method_load(program, "forward", NULL, &method));
  WORKS(pteron_runtime_register_backend(NULL, &keeps, 0));
  memset(given, 0, sizeof given);
  given[0].backend = given[1].backend = "Keeps";
  given[0].option.key.data = (const uint8_t *)"level";
  given[0].option.key.len = 5;
  given[0].option.kind = 1;
  given[0].option.number = 7;
  given[1].option.key.data = (const uint8_t *)"mode";
  given[1].option.key.len = 4;
  given[1].option.kind = 2;
  given[1].option.text.data = (const uint8_t *)"fast";
  given[1].option.text.len = 4;
  PTERON_INIT(&options);
  options.backend_options = given;
  options.backend_option_count = 2;
  WORKS(pteron_method_load(program, "forward", &options, &method));
  TRUE(told_number == 7 && told_text && alive == 1);
  WORKS(pteron_method_execute(method, &x, 1, NULL));
  WORKS(pteron_method_output(method, 0, &y));
  TRUE(((const float *)y.tensor.data)[1] == 5);
  WORKS(pteron_method_free(method));
  TRUE(alive == 0);
  given[1].option.kind = 9;
  REFUSED(MISUSE, "options.backend_options[1]", pteron_method_load(program, "forward", &options, &method));
  WORKS(pteron_program_free(program));
}

int main(int argc, char **argv) {
  if (argc != 6) return 2;
  data_files(argv[1], argv[2]);
  kernels(argv[3]);
  shared_state(argv[4]);
  backend_options(argv[5]);
  printf("all of it works\n");
  return 0;
}
