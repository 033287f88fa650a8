/* A method for each thread: they share the program, its code and its weights, and run at once.
 *
 *     cc -pthread threads.c $(pkg-config --cflags --libs pteron) -o threads && ./threads model.pte [threads] [calls]
 *
 * The model takes one float32 tensor and gives one. */
#include <pteron.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_THREADS 64

struct work {
  pteron_program *program;
  struct pteron_spec spec;
  float scale;
  long calls;
  double sum; /* of the elements of the last output */
  int32_t code;
  char text[256];
};

static int32_t run(struct work *work) {
  struct pteron_method_options options;
  pteron_method *method = NULL;
  struct pteron_arg x, y;
  float *data;
  size_t count = 1, i;
  long call;
  int32_t d, code;
  for (d = 0; d < work->spec.ndim; d++) count *= (size_t)work->spec.shape[d];
  data = malloc(count * sizeof *data);
  if (data == NULL) abort();
  for (i = 0; i < count; i++) data[i] = work->scale;
  x = pteron_arg_tensor(PTERON_FLOAT32, data, count * sizeof *data, work->spec.shape, work->spec.ndim);
  /* Kernels stay on this thread: the threads of the program are enough for the processors. */
  PTERON_INIT(&options);
  options.num_threads = 1;
  code = pteron_method_load(work->program, "forward", &options, &method);
  for (call = 0; code == PTERON_OK && call < work->calls; call++) code = pteron_method_execute(method, &x, 1, NULL);
  if (code == PTERON_OK) code = pteron_method_output(method, 0, &y);
  if (code == PTERON_OK)
    for (i = 0; i < y.tensor.nbytes / sizeof(float); i++) work->sum += (double)((const float *)y.tensor.data)[i];
  /* The text is that of this thread: it is kept for the one that prints. */
  if (code != PTERON_OK) snprintf(work->text, sizeof work->text, "%s", pteron_error_text());
  pteron_method_free(method);
  free(data);
  return code;
}

static void *start(void *argument) {
  struct work *work = argument;
  work->code = run(work);
  return NULL;
}

int main(int argc, char **argv) {
  static struct work work[MOST_THREADS];
  pthread_t threads[MOST_THREADS];
  struct pteron_spec spec;
  pteron_program *program;
  int count = argc > 2 ? atoi(argv[2]) : 4, i, failed = 0;
  if (argc < 2 || count < 1 || count > MOST_THREADS) {
    fprintf(stderr, "usage: threads MODEL.pte [THREADS, at most %d] [CALLS]\n", MOST_THREADS);
    return 2;
  }
  PTERON_INIT(&spec);
  if (pteron_program_open(argv[1], &program) != PTERON_OK ||
      pteron_program_spec(program, "forward", PTERON_INPUTS, 0, &spec) != PTERON_OK) {
    fprintf(stderr, "%s\n", pteron_error_text());
    return 1;
  }
  for (i = 0; i < count; i++) {
    work[i].program = program;
    work[i].spec = spec;
    work[i].scale = (float)(i + 1);
    work[i].calls = argc > 3 ? atol(argv[3]) : 100;
    if (pthread_create(&threads[i], NULL, start, &work[i]) != 0) abort();
  }
  for (i = 0; i < count; i++) {
    pthread_join(threads[i], NULL);
    if (work[i].code == PTERON_OK)
      printf("thread %d: %g\n", i, work[i].sum);
    else
      printf("thread %d: %s\n", i, work[i].text);
    failed |= work[i].code != PTERON_OK;
  }
  pteron_program_free(program);
  return failed;
}
