/* What the programs have in common: rows, checks, addresses.
 *
 * `PROGRAM --list` names the rows, `PROGRAM NUMBER` or `PROGRAM TEXT` runs them. `cargo xtask capi` runs each in a process
 * of its own, and ends it when its time is over. */
#ifndef CAPI_CHECK_H
#define CAPI_CHECK_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The thread's last error. Both interfaces have the same one. */
#ifdef NAA_H
#define WHY naa_last_error()
#else
#define WHY naaice_last_error()
#endif

#define CHECK(condition)                                                                                     \
  do {                                                                                                       \
    if (!(condition)) {                                                                                      \
      printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, WHY);                                        \
      fflush(stdout);                                                                                        \
      _exit(1);                                                                                              \
    }                                                                                                        \
  } while (0)

/* The call returns -1, and the text says why in these words. */
#define REFUSED(call, words)                                                                                 \
  do {                                                                                                       \
    int result_ = (call);                                                                                    \
    if (result_ != -1 || strstr(WHY, words) == NULL) {                                                       \
      printf("%s:%d: %s: %d, not \"%s\" but \"%s\"\n", __FILE__, __LINE__, #call, result_, words, WHY);      \
      fflush(stdout);                                                                                        \
      _exit(1);                                                                                              \
    }                                                                                                        \
  } while (0)

/* A row: the function it is for; what of it, beginning with "use", "arguments", "states", "errors" or "edges"; a limit
 * in seconds; whether it is for long runs only. */
struct row {
  const char *function, *what;
  void (*run)(void);
  int limit;
  bool only_long;
};

/* Functions of the accelerator. */
enum { INCREMENT = 1, SLEEP = 100, FAIL = 101, SUM = 102, COUNT = 103 };

static inline const char *setting(const char *name) {
  const char *value = getenv(name);
  if (value == NULL) {
    printf("%s is not set; cargo xtask capi does that\n", name);
    fflush(stdout);
    _exit(2);
  }
  return value;
}

static inline const char *server_ip(void) { return setting("CAPI_SERVER"); }
static inline uint16_t server_port(void) { return (uint16_t)atoi(setting("CAPI_PORT")); }
static inline const char *local_ip(void) { return setting("CAPI_LOCAL"); }
/* For servers that the row starts. */
static inline const char *spare_ip(void) { return setting("CAPI_SPARE"); }
static inline uint16_t spare_port(void) { return (uint16_t)atoi(setting("CAPI_SPARE_PORT")); }
/* How many times slower than others this machine may be. */
static inline int slowness(void) { return atoi(setting("CAPI_SLOWNESS")); }
static inline bool is_embedded(void) { return strcmp(setting("NAA_PROVIDER"), "embedded") == 0; }

static inline double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline void pause_ms(long ms) {
  const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

static inline void all_are(const void *memory, size_t size, unsigned value) {
  const unsigned char *bytes = (const unsigned char *)memory;
  for (size_t at = 0; at < size; at++) {
    if (bytes[at] != (unsigned char)value) {
      printf("byte %zu of %zu is %u instead of %u\n", at, size, bytes[at], value & 255);
      fflush(stdout);
      _exit(1);
    }
  }
}

/* Pointers that are nothing of the library's. Those that are freed or not mapped must not be touched by it. */
enum { NONSENSE = 6 };
static inline void nonsense(void *pointers[NONSENSE]) {
  static char in_data[512];
  static void *on_heap;
  if (on_heap == NULL) {
    on_heap = calloc(1, 512);
  }
  char *freed = (char *)malloc(512);
  void *unmapped = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(unmapped, 4096);
  pointers[0] = (void *)1;
  pointers[1] = (void *)(uintptr_t)-1;
  pointers[2] = in_data;
  pointers[3] = on_heap;
  pointers[4] = (void *)((uintptr_t)freed);
  pointers[5] = unmapped;
  free(freed);
}

/* Between a row and its child: one side tells, the other awaits. */
static int signal_pipe[2] = {-1, -1};

static inline void tell(void) {
  if (write(signal_pipe[1], "x", 1) != 1) {
    _exit(3);
  }
}

static inline void await(void) {
  char byte;
  if (read(signal_pipe[0], &byte, 1) != 1) {
    _exit(3);
  }
}

/* A child process. Neither side may have used the library before. */
static inline pid_t child(void (*body)(void)) {
  fflush(stdout);
  if (signal_pipe[0] < 0 && pipe(signal_pipe) != 0) {
    _exit(3);
  }
  const pid_t pid = fork();
  if (pid == 0) {
    body();
    fflush(stdout);
    _exit(0);
  }
  return pid;
}

static inline void ends_well(pid_t pid) {
  int status = -1;
  if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    printf("the child ended with status %#x\n", (unsigned)status);
    fflush(stdout);
    _exit(1);
  }
}

static inline int run_rows(const struct row *rows, size_t count, int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "--list") == 0) {
    for (size_t i = 0; i < count; i++) {
      printf("%s|%s|%d|%s\n", rows[i].function, rows[i].what, rows[i].limit, rows[i].only_long ? "long" : "");
    }
    return 0;
  }
  if (argc != 2) {
    printf("usage: PROGRAM --list | NUMBER | TEXT\n");
    return 2;
  }
  char *end = NULL;
  const unsigned long number = strtoul(argv[1], &end, 10);
  for (size_t i = 0; i < count; i++) {
    const bool wanted =
        *end == '\0' ? i == number : strstr(rows[i].function, argv[1]) != NULL || strstr(rows[i].what, argv[1]) != NULL;
    if (wanted) {
      printf("%s: %s\n", rows[i].function, rows[i].what);
      fflush(stdout);
      rows[i].run();
    }
  }
  return 0;
}

#define MAIN(rows)                                                                                           \
  int main(int argc, char **argv) { return run_rows(rows, sizeof(rows) / sizeof *(rows), argc, argv); }

#endif
