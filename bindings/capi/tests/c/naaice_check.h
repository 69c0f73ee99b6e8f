/* What the test programs have in common. */
#ifndef NAAICE_CHECK_H
#define NAAICE_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                                     \
  do {                                                                                                       \
    if (!(condition)) {                                                                                      \
      printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, naaice_last_error());                        \
      exit(1);                                                                                               \
    }                                                                                                        \
  } while (0)

/* The call fails, and the text says so in these words. */
#define REFUSED(call, words)                                                                                 \
  do {                                                                                                       \
    CHECK((call) == -1);                                                                                     \
    CHECK(strstr(naaice_last_error(), words) != NULL);                                                       \
  } while (0)

#endif
