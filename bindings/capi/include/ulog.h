/* Logging calls that NAAICE programs make, under the names of microlog 7.
 *
 * A line goes to standard error if its level is at least the one set last, TRACE in the beginning. The failures of
 * NAAICE's functions appear there too, at ULOG_LEVEL_ERROR. With ULOG_BUILD_DISABLED the calls do nothing.
 *
 * Not here: microlog's outputs, topics, prefixes and events. */
#ifndef ULOG_H
#define ULOG_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  ULOG_STATUS_OK = 0,
  ULOG_STATUS_ERROR = -1,
  ULOG_STATUS_INVALID_ARGUMENT = -2,
  ULOG_STATUS_NOT_FOUND = -3
} ulog_status;

typedef enum ulog_level_enum {
  ULOG_LEVEL_TRACE = 0,
  ULOG_LEVEL_DEBUG,
  ULOG_LEVEL_INFO,
  ULOG_LEVEL_WARN,
  ULOG_LEVEL_ERROR,
  ULOG_LEVEL_FATAL
} ulog_level;
#define ULOG_LEVEL_TOTAL 6

/* NAAICE's examples set the level that the build gives them. */
#ifndef LOG_LEVEL
#define LOG_LEVEL ULOG_LEVEL_INFO
#endif

typedef int ulog_output_id;
enum { ULOG_OUTPUT_INVALID = -1, ULOG_OUTPUT_STDOUT = 0, ULOG_OUTPUT_ALL = INT32_MAX };

#ifndef ULOG_BUILD_DISABLED

/* Lines below the level are left out from now on, in the whole process. */
ulog_status ulog_output_level_set_all(ulog_level level);
/* The same; there is one output. */
ulog_status ulog_output_level_set(ulog_output_id output, ulog_level level);
const char *ulog_level_to_string(ulog_level level);
ulog_status ulog_cleanup(void);

/* Whether lines of this level are written. */
int naa_ulog_is_on(ulog_level level);

#if defined(__GNUC__)
__attribute__((format(printf, 5, 6), unused))
#endif
static inline void
ulog_log(ulog_level level, const char *file, int line, const char *topic, const char *message, ...) {
  char text[2048];
  size_t length;
  va_list arguments;
  if (!naa_ulog_is_on(level)) {
    return;
  }
  va_start(arguments, message);
  vsnprintf(text, sizeof text, message, arguments);
  va_end(arguments);
  /* NAAICE's programs end their lines themselves, others do not. */
  for (length = 0; text[length] != '\0'; length++) {
  }
  while (length > 0 && text[length - 1] == '\n') {
    text[--length] = '\0';
  }
  fprintf(stderr, "%-5s %s:%d: %s%s%s\n", ulog_level_to_string(level), file, line, topic ? topic : "",
          topic ? ": " : "", text);
}

#define ulog_trace(...) ulog_log(ULOG_LEVEL_TRACE, __FILE__, __LINE__, NULL, __VA_ARGS__)
#define ulog_debug(...) ulog_log(ULOG_LEVEL_DEBUG, __FILE__, __LINE__, NULL, __VA_ARGS__)
#define ulog_info(...) ulog_log(ULOG_LEVEL_INFO, __FILE__, __LINE__, NULL, __VA_ARGS__)
#define ulog_warn(...) ulog_log(ULOG_LEVEL_WARN, __FILE__, __LINE__, NULL, __VA_ARGS__)
#define ulog_error(...) ulog_log(ULOG_LEVEL_ERROR, __FILE__, __LINE__, NULL, __VA_ARGS__)
#define ulog_fatal(...) ulog_log(ULOG_LEVEL_FATAL, __FILE__, __LINE__, NULL, __VA_ARGS__)

#else /* ULOG_BUILD_DISABLED */

#define ulog_output_level_set_all(level) ((void)(level), ULOG_STATUS_OK)
#define ulog_output_level_set(output, level) ((void)(output), (void)(level), ULOG_STATUS_OK)
#define ulog_level_to_string(level) ((void)(level), "?")
#define ulog_cleanup() (ULOG_STATUS_OK)
#define ulog_trace(...) ((void)0)
#define ulog_debug(...) ((void)0)
#define ulog_info(...) ((void)0)
#define ulog_warn(...) ((void)0)
#define ulog_error(...) ((void)0)
#define ulog_fatal(...) ((void)0)

#endif /* ULOG_BUILD_DISABLED */

#ifdef __cplusplus
}
#endif

#endif /* ULOG_H */
