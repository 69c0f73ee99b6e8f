/* Sessions of naa.h in every state. */
#ifndef CAPI_NATIVE_H
#define CAPI_NATIVE_H

#include <naa.h>

#include "check.h"

enum { BYTES = 64 };

#define OK(call)                                                                                             \
  do {                                                                                                       \
    const int32_t result_ = (call);                                                                          \
    if (result_ != NAA_OK) {                                                                                 \
      printf("%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, naa_result_name(result_), naa_last_error());  \
      fflush(stdout);                                                                                        \
      _exit(1);                                                                                              \
    }                                                                                                        \
  } while (0)

/* That result, and these words in the text. */
#define FAILS(wanted, words, call)                                                                           \
  do {                                                                                                       \
    const int32_t result_ = (call);                                                                          \
    if (result_ != (wanted) || strstr(naa_last_error(), words) == NULL) {                                    \
      printf("%s:%d: %s: %s instead of %s; \"%s\" is not in \"%s\"\n", __FILE__, __LINE__, #call,            \
             naa_result_name(result_), naa_result_name(wanted), words, naa_last_error());                    \
      fflush(stdout);                                                                                        \
      _exit(1);                                                                                              \
    }                                                                                                        \
  } while (0)

static inline naa_region region(void *addr, uint64_t size, uint32_t flags) {
  naa_region region;
  memset(&region, 0, sizeof region);
  region.addr = addr;
  region.size = size;
  region.flags = flags;
  return region;
}

static inline naa_options options(void) {
  naa_options options;
  OK(naa_options_init(&options, sizeof options));
  options.local_address = local_ip();
  return options;
}

static inline const char *server_address(void) {
  static char address[128];
  snprintf(address, sizeof address, "%s:%u", server_ip(), server_port());
  return address;
}

static unsigned char in[BYTES], out[BYTES];

/* One input, one output. */
static inline naa_session *connected(void) {
  const naa_region regions[] = {region(in, BYTES, NAA_INPUT), region(out, BYTES, NAA_OUTPUT)};
  const naa_options own = options();
  naa_session *session = NULL;
  OK(naa_session_connect(server_address(), regions, 2, &own, &session));
  return session;
}

static inline void calls(naa_session *session) {
  memset(in, 1, BYTES);
  memset(out, 0xee, BYTES);
  OK(naa_session_set_range_all(session, 0));
  OK(naa_call(session, SUM, 3, 10000 * slowness(), NULL));
  all_are(out, BYTES, BYTES + 3);
}

#endif
