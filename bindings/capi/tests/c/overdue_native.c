/* naa.h and calls that do not end in time: ADDRESS slow|limited|nonsense|unreachable */
#define _DEFAULT_SOURCE
#include <ulog.h>

#include "native_check.h"

static char data[8];
static naa_region whole = {data, sizeof data, NAA_INOUT};

static naa_session *connect_to(const char *address, int32_t call_timeout_ms) {
  naa_options options = {0};
  naa_session *session = NULL;
  options.struct_size = sizeof options;
  options.call_timeout_ms = call_timeout_ms;
  CHECK(naa_session_connect(address, &whole, 1, &options, &session) == NAA_OK);
  return session;
}

static void slow(const char *address, const char *quiet) {
  naa_session *session = connect_to(address, 0);
  naa_outcome outcome;
  if (strcmp(quiet, "quiet") == 0) {
    CHECK(ulog_output_level_set_all(ULOG_LEVEL_FATAL) == 0);
  }
  CHECK(naa_call(session, SLEEP, 11500, -1, &outcome) == NAA_OK);
  CHECK(naa_session_close(session) == NAA_OK);
}

static naa_result by_wait(naa_session *session, naa_outcome *outcome) { return naa_call_wait(session, -1, outcome); }

static naa_result by_parts(naa_session *session, naa_outcome *outcome) {
  naa_result result;
  do {
    result = naa_call_wait(session, 50, outcome);
  } while (result == NAA_ERROR_TIMEOUT);
  return result;
}

static naa_result by_test(naa_session *session, naa_outcome *outcome) {
  bool done = false;
  naa_result result = NAA_OK;
  while (!done) {
    result = naa_call_test(session, &done, outcome);
  }
  return result;
}

static naa_result by_any(naa_session *session, naa_outcome *outcome) {
  int64_t index = NAA_UNDEFINED;
  naa_result result = naa_call_wait_any(&session, 1, -1, &index, outcome);
  CHECK(index == 0);
  return result;
}

static naa_result by_all(naa_session *session, naa_outcome *outcome) {
  return naa_call_wait_all(&session, 1, -1, outcome);
}

/* With NAA_TIMEOUT=0.5. */
static void limited(const char *address) {
  naa_result (*const waits[])(naa_session *, naa_outcome *) = {by_wait, by_parts, by_test, by_any, by_all};
  naa_outcome outcome;
  naa_session *session;
  for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
    session = connect_to(address, 0);
    CHECK(naa_call_start(session, SLEEP, 3000) == NAA_OK);
    CHECK(waits[i](session, &outcome) == NAA_ERROR_GONE && outcome.result == NAA_ERROR_GONE);
    CHECK(strstr(naa_last_error(), "function 100 within 500ms") && strstr(naa_last_error(), "NAA_TIMEOUT"));
    CHECK(naa_call_start(session, SLEEP, 0) == NAA_ERROR_OVER);
    CHECK(naa_session_close(session) == NAA_OK);
  }
  /* What the program says counts more. */
  session = connect_to(address, -1);
  CHECK(naa_call(session, SLEEP, 800, -1, &outcome) == NAA_OK);
  CHECK(naa_session_close(session) == NAA_OK);
  session = connect_to(address, 100);
  CHECK(naa_call(session, SLEEP, 3000, -1, &outcome) == NAA_ERROR_GONE);
  CHECK(strstr(naa_last_error(), "within 100ms"));
  CHECK(naa_session_close(session) == NAA_OK);
}

/* With a NAA_TIMEOUT that is no time. */
static void nonsense(const char *address) {
  naa_session *session = NULL;
  CHECK(naa_session_connect(address, &whole, 1, NULL, &session) == NAA_ERROR_ENVIRONMENT && session == NULL);
  CHECK(strstr(naa_last_error(), "NAA_TIMEOUT=") && strstr(naa_last_error(), "give seconds"));
  session = connect_to(address, 1000);
  CHECK(naa_session_close(session) == NAA_OK);
}

/* With NAA_TIMEOUT=0.5 and nobody at the address. */
static void unreachable(const char *address) {
  naa_session *session = NULL;
  CHECK(naa_session_connect(address, &whole, 1, NULL, &session) == NAA_ERROR_UNREACHABLE);
}

int main(int argc, char **argv) {
  CHECK(argc == 4);
  if (strcmp(argv[2], "slow") == 0) {
    slow(argv[1], argv[3]);
  } else if (strcmp(argv[2], "limited") == 0) {
    limited(argv[1]);
  } else if (strcmp(argv[2], "nonsense") == 0) {
    nonsense(argv[1]);
  } else {
    unreachable(argv[1]);
  }
  puts("ok");
  return 0;
}
