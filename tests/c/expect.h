/* What the programs of these tests assert with: a failure says where, what was expected and what the library said. */
#ifndef EXPECT_H
#define EXPECT_H

#include <pteron.h>
#include <stdio.h>
#include <stdlib.h>

/* The call ends in PTERON_ERROR_`name` with `part` in its text. */
#define REFUSED(name, part, call) expect_code(__FILE__, __LINE__, #call, PTERON_ERROR_##name, part, (call))
#define WORKS(call) expect_code(__FILE__, __LINE__, #call, PTERON_OK, "", (call))
#define TRUE(condition) ((condition) ? (void)0 : expect_failed(__FILE__, __LINE__, #condition))

static inline void expect_failed(const char *file, int line, const char *what) {
  fprintf(stderr, "%s:%d: not true: %s\n", file, line, what);
  exit(1);
}

static inline void expect_code(const char *file, int line, const char *call, int32_t expected, const char *part,
                               int32_t code) {
  const char *text = code == PTERON_OK ? "" : pteron_error_text();
  if (code == expected && strstr(text, part) != NULL && (code == PTERON_OK || code == pteron_error_code())) return;
  fprintf(stderr, "%s:%d: %s\n  expected code %d with \"%s\"\n  got code %d: %s\n", file, line, call, (int)expected, part,
          (int)code, text);
  exit(1);
}

/* linear_relu.pte takes a float32[1..16, 4] and gives a float32[1..16, 3]. */
static const int64_t SHAPE[2] = {2, 4};
static const float X[8] = {0, 1, 2, 3, 4, 5, 6, 7};

static inline struct pteron_arg x_argument(void) { return pteron_arg_tensor(PTERON_FLOAT32, X, sizeof X, SHAPE, 2); }

static inline pteron_program *opened(const char *path) {
  pteron_program *program;
  WORKS(pteron_program_open(path, &program));
  return program;
}

static inline pteron_method *loaded(pteron_program *program, const char *name) {
  pteron_method *method;
  WORKS(pteron_method_load(program, name, NULL, &method));
  return method;
}

#endif
