/* Threads that use one method at once, stop it, free it while it runs; children of a process whose threads make and free
 * handles. Arguments: linear_relu.pte, a program that adds for ever, and "forks" for the last: AddressSanitizer's allocator may
 * be held by another thread when a process forks. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

static const char *LINEAR, *ENDLESS;

/* --- one method, several threads --- */

struct endless {
  pteron_method *method;
  const struct pteron_execute_options *options;
  int32_t code;
  char text[1024];
};

static void *run_endless(void *argument) {
  struct endless *run = argument;
  const float data[6] = {0};
  const int64_t shape[2] = {2, 3};
  struct pteron_arg inputs[2];
  inputs[0] = inputs[1] = pteron_arg_tensor(PTERON_FLOAT32, data, sizeof data, shape, 2);
  do /* who waits until the method runs may have it in use */
    run->code = pteron_method_execute(run->method, inputs, 2, run->options);
  while (run->code == PTERON_ERROR_METHOD_BUSY);
  snprintf(run->text, sizeof run->text, "%s", pteron_error_text());
  return NULL;
}

/* Waits until the method runs: a call of another thread is refused then. */
static void wait_until_busy(pteron_method *method) {
  while (pteron_method_seed(method, 1) == PTERON_OK) sched_yield();
  TRUE(pteron_error_code() == PTERON_ERROR_METHOD_BUSY);
}

static void one_method(void) {
  pteron_program *program = opened(ENDLESS);
  struct endless run = {NULL, NULL, 0, ""};
  struct pteron_execute_options options;
  struct pteron_method_options limited;
  struct pteron_limits limits;
  struct pteron_arg x = x_argument();
  pthread_t thread;
  size_t count;

  run.method = loaded(program, "forward");
  WORKS(pteron_method_cancel(run.method)); /* nothing runs: nothing happens */
  TRUE(pthread_create(&thread, NULL, run_endless, &run) == 0);
  wait_until_busy(run.method);
  REFUSED(METHOD_BUSY, "load a method for each thread", pteron_method_execute(run.method, &x, 1, NULL));
  REFUSED(METHOD_BUSY, "in use", pteron_method_output_count(run.method, &count));
  WORKS(pteron_method_cancel(run.method));
  TRUE(pthread_join(thread, NULL) == 0);
  TRUE(run.code == PTERON_ERROR_CANCELLED);

  /* Freed while it runs: the call goes on, and stops at its deadline. */
  PTERON_INIT(&options);
  options.deadline_ns = 300000000;
  run.options = &options;
  TRUE(pthread_create(&thread, NULL, run_endless, &run) == 0);
  wait_until_busy(run.method);
  WORKS(pteron_method_free(run.method));
  WORKS(pteron_program_free(program));
  REFUSED(MISUSE, "one that was freed", pteron_method_cancel(run.method));
  TRUE(pthread_join(thread, NULL) == 0);
  TRUE(run.code == PTERON_ERROR_DEADLINE_EXCEEDED && strstr(run.text, "deadline") != NULL);

  program = opened(ENDLESS);
  PTERON_INIT(&limited);
  PTERON_INIT(&limits);
  limits.instructions = 1000;
  limited.limits = &limits;
  WORKS(pteron_method_load(program, "forward", &limited, &run.method));
  run.options = NULL;
  run_endless(&run);
  TRUE(run.code == PTERON_ERROR_LIMIT_EXCEEDED && strstr(run.text, "pteron_limits") != NULL);
  WORKS(pteron_method_free(run.method));
  WORKS(pteron_program_free(program));
}

/* --- errors of threads --- */

static void *fails_otherwise(void *unused) {
  pteron_program *program;
  TRUE(pteron_error_code() == PTERON_OK && pteron_error_text()[0] == 0);
  REFUSED(NOT_FOUND, "elsewhere", pteron_program_open("elsewhere", &program));
  return unused;
}

static void errors(void) {
  pteron_program *program;
  pthread_t thread;
  REFUSED(NOT_FOUND, "not-here", pteron_program_open("not-here", &program));
  TRUE(pthread_create(&thread, NULL, fails_otherwise, NULL) == 0 && pthread_join(thread, NULL) == 0);
  TRUE(strstr(pteron_error_text(), "not-here") != NULL);
}

/* --- forks --- */

static atomic_int is_over;

static void *make_and_free(void *argument) {
  pteron_program *program = argument;
  while (!atomic_load(&is_over)) {
    pteron_method *method = loaded(program, "forward");
    struct pteron_arg x = x_argument();
    WORKS(pteron_method_execute(method, &x, 1, NULL));
    WORKS(pteron_method_free(method));
  }
  return NULL;
}

static void forks(void) {
  pteron_program *program = opened(LINEAR);
  pteron_method *method = loaded(program, "forward");
  pthread_t threads[2];
  int i, status;
  for (i = 0; i < 2; i++) TRUE(pthread_create(&threads[i], NULL, make_and_free, program) == 0);
  for (i = 0; i < 60; i++) {
    pid_t child = fork();
    TRUE(child >= 0);
    if (child == 0) {
      struct pteron_arg x = x_argument();
      pteron_program *own;
      alarm(20); /* a child that waits for ever ends by this signal */
      WORKS(pteron_method_execute(method, &x, 1, NULL));
      own = opened(LINEAR);
      WORKS(pteron_method_execute(loaded(own, "forward"), &x, 1, NULL));
      _exit(0);
    }
    TRUE(waitpid(child, &status, 0) == child);
    TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  atomic_store(&is_over, 1);
  for (i = 0; i < 2; i++) TRUE(pthread_join(threads[i], NULL) == 0);
  WORKS(pteron_method_free(method));
  WORKS(pteron_program_free(program));
}

int main(int argc, char **argv) {
  if (argc != 3 && argc != 4) return 2;
  LINEAR = argv[1];
  ENDLESS = argv[2];
  one_method();
  errors();
  if (argc == 4) forks();
  printf("nothing hung\n");
  return 0;
}
