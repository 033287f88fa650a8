/* A backend of one's own, written in C: it multiplies float32 by the number in its blob.
 *
 *     cc backend.c $(pkg-config --cflags --libs pteron) -o backend && ./backend model.pte
 *
 * The model has a delegate of the backend "Scale", and takes and gives one float32 tensor of rank 2. */
#include <pteron.h>
#include <stdio.h>
#include <stdlib.h>

static int32_t failed(struct pteron_error *error, const char *text) {
  struct pteron_bytes bytes = {(const uint8_t *)text, strlen(text)};
  error->set(error->host, bytes, -1);
  return PTERON_FAILED;
}

/* One delegate for each call site and session. The blob comes from a file that nobody vouches for. */
static int32_t init(void *plugin, const struct pteron_init *told, void **delegate, size_t *num_outputs,
                    struct pteron_error *error) {
  char text[32], *end;
  float *factor;
  (void)plugin;
  if (told->processed.len == 0 || told->processed.len >= sizeof text) return failed(error, "the blob is not a number");
  memcpy(text, told->processed.data, told->processed.len);
  text[told->processed.len] = 0;
  factor = malloc(sizeof *factor);
  if (factor == NULL) return failed(error, "out of memory");
  *factor = strtof(text, &end);
  if (end == text || *end != 0) {
    free(factor);
    return failed(error, "the blob is not a number");
  }
  *delegate = factor;
  *num_outputs = 1;
  return PTERON_OK;
}

static int32_t execute(void *delegate, const struct pteron_execute *told, const struct pteron_arg *inputs,
                       size_t input_count, struct pteron_output *outputs, size_t output_count,
                       struct pteron_error *error) {
  const float factor = *(const float *)delegate, *from;
  float *to;
  size_t i;
  (void)told;
  if (input_count != 1 || output_count != 1 || inputs[0].kind != PTERON_KIND_TENSOR ||
      inputs[0].tensor.dtype != PTERON_FLOAT32 || outputs[0].tensor.dtype != PTERON_FLOAT32)
    return failed(error, "one float32 tensor in, one out, is all that this backend knows");
  if (outputs[0].resize(&outputs[0], inputs[0].tensor.shape, (size_t)inputs[0].tensor.ndim) != PTERON_OK)
    return PTERON_FAILED;
  from = inputs[0].tensor.data;
  to = outputs[0].tensor.data;
  for (i = 0; i < inputs[0].tensor.nbytes / sizeof *to; i++) to[i] = factor * from[i];
  return PTERON_OK;
}

static void destroy(void *delegate) { free(delegate); }

static const struct pteron_backend SCALE = {
    PTERON_ABI_MAJOR, sizeof(struct pteron_backend), "Scale", NULL, NULL, init, execute, destroy, NULL, NULL, NULL, NULL};

int main(int argc, char **argv) {
  const float data[6] = {0, 1, 2, 3, 4, 5};
  const int64_t shape[2] = {2, 3};
  struct pteron_arg x = pteron_arg_tensor(PTERON_FLOAT32, data, sizeof data, shape, 2), y;
  pteron_program *program = NULL;
  pteron_method *method = NULL;
  int is_good;
  size_t i;
  if (argc != 2) {
    fprintf(stderr, "usage: backend MODEL.pte\n");
    return 2;
  }
  is_good = pteron_runtime_register_backend(NULL, &SCALE, 0) == PTERON_OK &&
            pteron_program_open(argv[1], &program) == PTERON_OK &&
            pteron_method_load(program, "forward", NULL, &method) == PTERON_OK &&
            pteron_method_execute(method, &x, 1, NULL) == PTERON_OK && pteron_method_output(method, 0, &y) == PTERON_OK;
  if (is_good) {
    for (i = 0; i < y.tensor.nbytes / sizeof(float); i++) printf("%g ", (double)((const float *)y.tensor.data)[i]);
    printf("\n");
  } else {
    fprintf(stderr, "%s\n", pteron_error_text());
  }
  pteron_method_free(method);
  pteron_program_free(program);
  return !is_good;
}
