/* Runs a method of a .pte file and prints what comes out; then what the method keeps between calls.
 *
 *     cc run.c $(pkg-config --cflags --libs pteron) -o run && ./run model.pte [method]
 *
 * Tensors are of the largest shape that the method takes and hold 0, 1, 2, ...; numbers are those of the export. */
#include <inttypes.h>
#include <pteron.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_INPUTS 16

/* Ends the program where a call fails. */
static void check(int32_t code) {
  if (code == PTERON_OK) return;
  fprintf(stderr, "%s: %s\n", pteron_error_name(code), pteron_error_text());
  exit(1);
}

static void print_shape(const int64_t *shape, int32_t ndim) {
  int32_t i;
  printf("[");
  for (i = 0; i < ndim; i++) printf("%s%" PRId64, i ? ", " : "", shape[i]);
  printf("]");
}

/* The first elements of a tensor in the order of its memory. */
static void print_tensor(const struct pteron_tensor *tensor) {
  size_t count = tensor->nbytes / pteron_dtype_size(tensor->dtype), i;
  printf("%s", pteron_dtype_name(tensor->dtype));
  print_shape(tensor->shape, tensor->ndim);
  for (i = 0; i < count && i < 6; i++) {
    switch (tensor->dtype) {
      case PTERON_FLOAT32: printf(" %g", (double)((const float *)tensor->data)[i]); break;
      case PTERON_INT64: printf(" %" PRId64, ((const int64_t *)tensor->data)[i]); break;
      case PTERON_BOOL: printf(" %d", ((const uint8_t *)tensor->data)[i]); break;
      default: printf(" ?"); break;
    }
  }
  printf("%s\n", count > 6 ? " ..." : "");
}

static void print_value(const struct pteron_arg *value) {
  switch (value->kind) {
    case PTERON_KIND_TENSOR: print_tensor(&value->tensor); break;
    case PTERON_KIND_INT: printf("%" PRId64 "\n", value->number); break;
    case PTERON_KIND_BOOL: printf("%s\n", value->number ? "true" : "false"); break;
    case PTERON_KIND_DOUBLE: printf("%g\n", value->real); break;
    case PTERON_KIND_STRING: printf("\"%.*s\"\n", (int)value->text.len, (const char *)value->text.data); break;
    default: printf("none\n"); break;
  }
}

/* A tensor of the largest shape; the caller frees its data. */
static struct pteron_arg make_tensor(const struct pteron_spec *spec) {
  size_t count = 1, size = pteron_dtype_size(spec->dtype), i;
  unsigned char *data;
  int32_t d;
  for (d = 0; d < spec->ndim; d++) count *= (size_t)spec->shape[d];
  data = calloc(count ? count : 1, size);
  if (data == NULL) exit(1);
  for (i = 0; i < count; i++) {
    if (spec->dtype == PTERON_FLOAT32) ((float *)(void *)data)[i] = (float)i;
    if (spec->dtype == PTERON_INT64) ((int64_t *)(void *)data)[i] = (int64_t)i;
  }
  return pteron_arg_tensor(spec->dtype, data, count * size, spec->shape, spec->ndim);
}

static struct pteron_arg make_input(const struct pteron_spec *spec) {
  switch (spec->kind) {
    case PTERON_KIND_TENSOR: return make_tensor(spec);
    case PTERON_KIND_INT: return pteron_arg_int(spec->number);
    case PTERON_KIND_BOOL: return pteron_arg_bool(spec->number != 0);
    case PTERON_KIND_DOUBLE: return pteron_arg_double(spec->real);
    case PTERON_KIND_STRING: return pteron_arg_string(spec->string);
    default: return pteron_arg_none();
  }
}

static int32_t print_buffer(void *host, struct pteron_bytes name, const struct pteron_tensor *tensor) {
  (void)host;
  printf("state %.*s: ", (int)name.len, (const char *)name.data);
  print_tensor(tensor);
  return PTERON_OK;
}

int main(int argc, char **argv) {
  const char *name = argc > 2 ? argv[2] : "forward";
  struct pteron_arg inputs[MOST_INPUTS], output;
  struct pteron_spec spec;
  pteron_program *program;
  pteron_method *method;
  size_t input_count, output_count, i;
  int32_t is_stateful;
  if (argc < 2) {
    fprintf(stderr, "usage: run MODEL.pte [METHOD]\n");
    return 2;
  }
  check(pteron_program_open(argv[1], &program));
  check(pteron_method_load(program, name, NULL, &method));

  check(pteron_program_spec_count(program, name, PTERON_INPUTS, &input_count));
  if (input_count > MOST_INPUTS) {
    fprintf(stderr, "the method takes %zu inputs, and this program knows %d\n", input_count, MOST_INPUTS);
    return 1;
  }
  for (i = 0; i < input_count; i++) {
    PTERON_INIT(&spec);
    check(pteron_program_spec(program, name, PTERON_INPUTS, i, &spec));
    printf("input %s: %s\n", spec.name, spec.text);
    inputs[i] = make_input(&spec);
  }

  check(pteron_method_execute(method, inputs, input_count, NULL));
  check(pteron_method_output_count(method, &output_count));
  for (i = 0; i < output_count; i++) {
    PTERON_INIT(&spec);
    check(pteron_program_spec(program, name, PTERON_OUTPUTS, i, &spec));
    check(pteron_method_output(method, i, &output));
    printf("output %s: ", spec.name);
    print_value(&output);
  }

  check(pteron_method_is_stateful(method, &is_stateful));
  if (is_stateful) check(pteron_method_get_state(method, print_buffer, NULL));

  for (i = 0; i < input_count; i++)
    if (inputs[i].kind == PTERON_KIND_TENSOR) free(inputs[i].tensor.data);
  pteron_method_free(method);
  pteron_program_free(program);
  return 0;
}
