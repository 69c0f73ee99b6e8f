/* The logging calls, and what the library itself writes by them. */
#include <naaice.h>

#include "check.h"

/* What `body` writes on standard error. */
static const char *written(void (*body)(void)) {
  static char text[16384];
  int ends[2];
  CHECK(pipe(ends) == 0);
  const int before = dup(STDERR_FILENO);
  fflush(stderr);
  CHECK(before >= 0 && dup2(ends[1], STDERR_FILENO) >= 0);
  close(ends[1]);
  body();
  fflush(stderr);
  CHECK(dup2(before, STDERR_FILENO) >= 0);
  close(before);
  const ssize_t length = read(ends[0], text, sizeof text - 1);
  CHECK(length >= 0);
  text[length] = '\0';
  close(ends[0]);
  return text;
}

static void each_level(void) {
  ulog_trace("a %s", "trace");
  ulog_debug("a %d", 1);
  ulog_info("an info\n");
  ulog_warn("a warning");
  ulog_error("an error %c", '!');
  ulog_fatal("the end");
}

static void log_lines(void) {
  const char *text = written(each_level);
  const char *const expected[] = {"TRACE", "ulog.c:", ": a trace\n", "DEBUG", ": a 1\n",          "INFO",
                                  ": an info\n", "WARN", ": a warning\n", "ERROR", ": an error !\n", "FATAL"};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    CHECK(strstr(text, expected[i]) != NULL);
  }
  CHECK(strstr(text, "\n\n") == NULL);
}

static void levels(void) {
  static const ulog_level all[] = {ULOG_LEVEL_TRACE, ULOG_LEVEL_DEBUG, ULOG_LEVEL_INFO,
                                   ULOG_LEVEL_WARN,  ULOG_LEVEL_ERROR, ULOG_LEVEL_FATAL};
  for (int level = 0; level < ULOG_LEVEL_TOTAL; level++) {
    CHECK(ulog_output_level_set_all(all[level]) == ULOG_STATUS_OK);
    const char *text = written(each_level);
    int lines = 0;
    for (const char *at = text; *at != '\0'; at++) {
      lines += *at == '\n';
    }
    CHECK(lines == ULOG_LEVEL_TOTAL - level);
    for (int other = 0; other < ULOG_LEVEL_TOTAL; other++) {
      CHECK((naa_ulog_is_on(all[other]) != 0) == (other >= level));
    }
  }
}

static ulog_level number(int value) {
  ulog_level level;
  memcpy(&level, &value, sizeof level);
  return level;
}

static void levels_that_are_none(void) {
  const int bad[] = {-1, 6, 1000, INT32_MIN, INT32_MAX};
  CHECK(ulog_output_level_set_all(ULOG_LEVEL_WARN) == ULOG_STATUS_OK);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    CHECK(ulog_output_level_set_all(number(bad[i])) != ULOG_STATUS_OK);
    CHECK(ulog_output_level_set(ULOG_OUTPUT_ALL, number(bad[i])) != ULOG_STATUS_OK);
    CHECK(ulog_level_to_string(number(bad[i])) != NULL);
    (void)naa_ulog_is_on(number(bad[i]));
  }
  CHECK(naa_ulog_is_on(ULOG_LEVEL_WARN) && !naa_ulog_is_on(ULOG_LEVEL_INFO));
}

static void outputs(void) {
  CHECK(ulog_output_level_set(ULOG_OUTPUT_STDOUT, ULOG_LEVEL_ERROR) == ULOG_STATUS_OK);
  CHECK(!naa_ulog_is_on(ULOG_LEVEL_WARN));
  CHECK(ulog_output_level_set(ULOG_OUTPUT_ALL, ULOG_LEVEL_TRACE) == ULOG_STATUS_OK && naa_ulog_is_on(ULOG_LEVEL_TRACE));
  CHECK(strcmp(ulog_level_to_string(ULOG_LEVEL_WARN), "WARN") == 0);
}

static void fails(void) {
  (void)naaice_do_mrsp(NULL);
  (void)naaice_do_mrsp(NULL);
}

/* The library's own lines have a level too. */
static void own_lines(void) {
  const char *text = written(fails);
  CHECK(strstr(text, "naa: naaice_do_mrsp: the pointer is NULL") != NULL);
  CHECK(ulog_output_level_set_all(ULOG_LEVEL_FATAL) == ULOG_STATUS_OK);
  (void)naaice_set_input_mr(NULL, 0);
  text = written(fails);
  CHECK(text[0] == '\0' && strstr(naaice_last_error(), "naaice_do_mrsp") != NULL);
  CHECK(ulog_cleanup() == ULOG_STATUS_OK && ulog_cleanup() == ULOG_STATUS_OK);
}

static void long_line(void) {
  static char message[5000];
  memset(message, 'x', sizeof message - 1);
  ulog_error("%s", message);
  ulog_error("%%s %%n %s", "%s%n");
}

static void long_lines(void) {
  const char *text = written(long_line);
  CHECK(strlen(text) > 2000 && strlen(text) < 5000 && strstr(text, "%s %n %s%n\n") != NULL);
}

static const struct row rows[] = {
    {"ulog_log", "use, by its macros", log_lines, 5, false},
    {"ulog_log", "edges, long lines and percent signs", long_lines, 5, false},
    {"ulog_output_level_set_all", "use", levels, 5, false},
    {"ulog_output_level_set_all", "arguments", levels_that_are_none, 5, false},
    {"ulog_output_level_set", "use", outputs, 5, false},
    {"ulog_output_level_set", "arguments", levels_that_are_none, 5, false},
    {"ulog_level_to_string", "use", outputs, 5, false},
    {"ulog_level_to_string", "arguments", levels_that_are_none, 5, false},
    {"naa_ulog_is_on", "use", levels, 5, false},
    {"naa_ulog_is_on", "arguments", levels_that_are_none, 5, false},
    {"ulog_cleanup", "use, and the library's own lines", own_lines, 5, false},
};

MAIN(rows)
