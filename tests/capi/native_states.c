/* Every function of naa.h that takes a session, in every state that a session can be in. */
#include "native.h"

#include "swnaa_hook.h"

enum stage { IDLE, RUNNING, ENDED, TOLD, OVER, CLOSED, ELSEWHERE, STAGES };

static const char *const names[STAGES] = {"idle", "running", "ended and nobody looked", "ended", "over", "closed", "on another thread"};

/* An accelerator that ends the connection when it is called. */
static void *leaves(void *argument) {
  struct worker_args *args = (struct worker_args *)argument;
  struct naaice_communication_context *ctx = args->ctx->worker[args->worker_id];
  free(args);
  if (naaice_swnaa_do_mrsp(ctx) == 0) {
    (void)naaice_swnaa_receive_data_transfer(ctx);
  }
  (void)naaice_swnaa_disconnect_and_cleanup(ctx);
  return NULL;
}

static void serve(void) {
  struct context *server = NULL;
  setenv("NAA_LOCAL_IP", spare_ip(), 1);
  CHECK(naaice_swnaa_init_master(&server, spare_port()) == 0 && naaice_swnaa_set_worker(server, leaves) == 0);
  tell();
  for (;;) {
    (void)naaice_swnaa_poll_and_handle_connection_event(server);
  }
}

static naa_session *connected_to_spare(void) {
  const naa_region regions[] = {region(in, BYTES, NAA_INPUT), region(out, BYTES, NAA_OUTPUT)};
  const naa_options own = options();
  naa_session *session = NULL;
  char address[128];
  snprintf(address, sizeof address, "%s:%u", spare_ip(), spare_port());
  OK(naa_session_connect(address, regions, 2, &own, &session));
  return session;
}

static naa_session *held;
static volatile bool holds;

static void *hold(void *unused) {
  holds = true;
  OK(naa_call(held, SLEEP, (unsigned)(600 * slowness()), 60000, NULL));
  holds = false;
  return unused;
}

static pthread_t holder;

static naa_session *session_in(int stage) {
  naa_session *session = stage == OVER ? connected_to_spare() : connected();
  naa_outcome outcome;
  if (stage == RUNNING || stage == ENDED || stage == TOLD) {
    OK(naa_call_start(session, SLEEP, stage == RUNNING ? 300 : 1));
  }
  if (stage == ENDED) {
    pause_ms(100 * slowness());
  }
  if (stage == TOLD) {
    OK(naa_call_wait(session, 10000 * slowness(), &outcome));
  }
  if (stage == OVER) {
    FAILS(NAA_ERROR_GONE, "", naa_call(session, SLEEP, 1, 20000 * slowness(), &outcome));
    CHECK(outcome.result == NAA_ERROR_GONE);
  }
  if (stage == CLOSED) {
    OK(naa_session_close(session));
  }
  if (stage == ELSEWHERE) {
    held = session;
    holds = false;
    CHECK(pthread_create(&holder, NULL, hold, NULL) == 0);
    pause_ms(100 * slowness());
    CHECK(holds);
  }
  return session;
}

/* Whatever was done to it: on to a right result if it lives, and closed once. */
static void ends(naa_session *session, int stage) {
  int32_t state = -1;
  if (stage == ELSEWHERE) {
    CHECK(pthread_join(holder, NULL) == 0);
  }
  if (stage != CLOSED) {
    OK(naa_session_state(session, &state));
    if (state == NAA_SESSION_RUNNING) {
      OK(naa_call_wait(session, 10000 * slowness(), NULL));
    }
    if (state == NAA_SESSION_OVER) {
      CHECK(stage == OVER);
      FAILS(NAA_ERROR_OVER, "", naa_call_start(session, SUM, 0));
    } else {
      calls(session);
    }
    OK(naa_session_close(session));
  }
  FAILS(NAA_ERROR_ARGUMENT, "", naa_session_close(session));
}

typedef int32_t operation(naa_session *session);

static bool allowed(int32_t result, const char *cell) {
  /* OK, Argument, State, Timeout, oVer, Gone */
  static const struct {
    char letter;
    int32_t result;
  } letters[] = {{'O', NAA_OK}, {'A', NAA_ERROR_ARGUMENT}, {'S', NAA_ERROR_STATE}, {'T', NAA_ERROR_TIMEOUT}, {'V', NAA_ERROR_OVER}};
  for (size_t i = 0; i < sizeof letters / sizeof *letters; i++) {
    if (*cell == letters[i].letter) {
      return result == letters[i].result;
    }
  }
  return false;
}

static void in_every_state(operation *call, const char *cells) {
  CHECK(strlen(cells) == STAGES);
  const pid_t server = child(serve);
  await();
  for (int stage = 0; stage < STAGES; stage++) {
    naa_session *session = session_in(stage);
    const int32_t result = call(session);
    if (!allowed(result, cells + stage)) {
      printf("%s: %s instead of %c: %s\n", names[stage], naa_result_name(result), cells[stage], naa_last_error());
      fflush(stdout);
      kill(server, SIGKILL);
      _exit(1);
    }
    ends(session, stage);
  }
  kill(server, SIGKILL);
  waitpid(server, NULL, 0);
}

#define STATES(row, call, cells)                                                                             \
  static int32_t do_##row(naa_session *session) { return call; }                                             \
  static void row(void) { in_every_state(do_##row, cells); }

static int32_t test_of(naa_session *session) {
  naa_outcome outcome;
  bool done = false;
  const int32_t result = naa_call_test(session, &done, &outcome);
  CHECK(result != NAA_OK || !done || outcome.function == SLEEP);
  return result;
}

static int32_t any_of(naa_session *session, int32_t timeout) {
  naa_session *sessions[2] = {NULL, session};
  int64_t index = 77;
  const int32_t result = naa_call_wait_any(sessions, 2, timeout, &index, NULL);
  CHECK(result != NAA_OK || index == 1 || index == NAA_UNDEFINED);
  CHECK(result == NAA_OK || index == NAA_UNDEFINED);
  return result;
}

static int32_t all_of(naa_session *session, int32_t timeout) {
  naa_session *sessions[2] = {session, NULL};
  naa_outcome outcomes[2];
  return naa_call_wait_all(sessions, 2, timeout, outcomes);
}

static int32_t number;

static int32_t describes(naa_session *session) {
  const char *text = naa_session_describe(session);
  CHECK(text == NULL || strstr(text, " on ") != NULL);
  return text != NULL ? NAA_OK : strstr(naa_last_error(), "another thread") != NULL ? NAA_ERROR_STATE : NAA_ERROR_ARGUMENT;
}

static int32_t closes(naa_session *session) {
  const int32_t result = naa_session_close(session);
  return result;
}

static int32_t functions_of(naa_session *session) {
  const naa_function *functions = NULL;
  size_t count = 77;
  const int32_t result = naa_session_functions(session, &functions, &count);
  CHECK((result == NAA_OK) == (functions != NULL));
  return result;
}

/*                                                           I R E T O C E */
STATES(start, naa_call_start(session, SLEEP, 1),             "OSSOVAS")
STATES(call_of, naa_call(session, SLEEP, 1, 20000, NULL),    "OSSOVAS")
STATES(test_row, test_of(session),                           "SOOSSAS")
STATES(wait_of, naa_call_wait(session, 20000, NULL),         "SOOSSAS")
STATES(look, naa_call_wait(session, 0, NULL),                "STOSSAS")
STATES(any, any_of(session, 20000),                          "OOOOOAS")
STATES(any_look, any_of(session, 0),                         "OTOOOAS")
STATES(all, all_of(session, 20000),                          "OOOOOAS")
STATES(all_look, all_of(session, 0),                         "OTOOOAS")
STATES(state, naa_session_state(session, &number),           "OOOOOAS")
STATES(describe, describes(session),                         "OOOOOAS")
STATES(fd, naa_session_fd(session, &number),                 "OOOOOAS")
STATES(range, naa_session_set_range(session, 0, 3, 5),       "OOOOOAS")
STATES(functions, functions_of(session),                     "OOOOVAS")
STATES(find, naa_session_find_function(session, "sum", &number), "OOOOVAS")
STATES(range_all, naa_session_set_range_all(session, 0),     "OOOOOAS")

/* Closed in every state. */
static void close_row(void) {
  const pid_t server = child(serve);
  await();
  for (int stage = 0; stage < STAGES; stage++) {
    naa_session *session = session_in(stage);
    const int32_t result = closes(session);
    CHECK(result == (stage == CLOSED ? NAA_ERROR_ARGUMENT : stage == ELSEWHERE ? NAA_ERROR_STATE : NAA_OK));
    ends(session, stage == ELSEWHERE ? ELSEWHERE : CLOSED);
  }
  kill(server, SIGKILL);
  waitpid(server, NULL, 0);
}

/* This server ends the connection over which it is asked; the session itself stays usable. */
static void no_catalogue(void) {
  const pid_t server = child(serve);
  await();
  naa_session *session = connected_to_spare();
  int32_t code = 77;
  FAILS(NAA_ERROR_GONE, "did not tell which functions", naa_session_find_function(session, "sum", &code));
  CHECK(code == 0);
  OK(naa_session_state(session, &code));
  CHECK(code == NAA_SESSION_IDLE);
  OK(naa_session_close(session));
  kill(server, SIGKILL);
  waitpid(server, NULL, 0);
}

static const struct row rows[] = {
    {"naa_call_start", "states", start, 30, false},
    {"naa_call", "states", call_of, 30, false},
    {"naa_call_test", "states", test_row, 30, false},
    {"naa_call_wait", "states", wait_of, 30, false},
    {"naa_call_wait", "states, without waiting", look, 30, false},
    {"naa_call_wait_any", "states", any, 30, false},
    {"naa_call_wait_any", "states, without waiting", any_look, 30, false},
    {"naa_call_wait_all", "states", all, 30, false},
    {"naa_call_wait_all", "states, without waiting", all_look, 30, false},
    {"naa_session_state", "states", state, 30, false},
    {"naa_session_describe", "states", describe, 30, false},
    {"naa_session_fd", "states", fd, 30, false},
    {"naa_session_functions", "states", functions, 30, false},
    {"naa_session_find_function", "states", find, 30, false},
    {"naa_session_find_function", "errors, no catalogue", no_catalogue, 30, false},
    {"naa_session_set_range", "states", range, 30, false},
    {"naa_session_set_range_all", "states", range_all, 30, false},
    {"naa_session_close", "states", close_row, 30, false},
};

MAIN(rows)
