/* Every function of naa.h as it is meant to be used. */
#include "native.h"

#include <poll.h>

static void version(void) { CHECK(strcmp(naa_version(), "0.1.0") == 0 && naa_version() == naa_version()); }

static void *on_a_thread(void *unused) {
  CHECK(strcmp(naa_last_error(), "") == 0);
  return unused;
}

static void last_error(void) {
  pthread_t thread;
  CHECK(strcmp(naa_last_error(), "") == 0);
  FAILS(NAA_ERROR_ARGUMENT, "NULL", naa_call_start(NULL, 1, 0));
  CHECK(pthread_create(&thread, NULL, on_a_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
  naa_session *session = connected();
  calls(session);
  CHECK(strstr(naa_last_error(), "NULL") != NULL);
  OK(naa_session_close(session));
}

static void result_names(void) {
  const char *const names[] = {"NAA_OK",          "NAA_ERROR_ARGUMENT", "NAA_ERROR_STATE",   "NAA_ERROR_ENVIRONMENT",
                               "NAA_ERROR_DEVICE", "NAA_ERROR_UNREACHABLE", "NAA_ERROR_REFUSED", "NAA_ERROR_TIMEOUT",
                               "NAA_ERROR_PEER",   "NAA_ERROR_GONE",     "NAA_ERROR_MEMORY",  "NAA_ERROR_FUNCTION",
                               "NAA_ERROR_OVER",   "NAA_ERROR_INTERNAL"};
  for (int32_t i = 0; i < (int32_t)(sizeof names / sizeof *names); i++) {
    CHECK(strcmp(naa_result_name(-i), names[i]) == 0);
  }
}

static void result_numbers(void) {
  const int32_t none[] = {1, 100, -14, -1000, INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    CHECK(strcmp(naa_result_name(none[i]), "unknown") == 0);
  }
}

static void function_codes(void) {
  CHECK(naa_function_code("increment") == 1 && naa_function_code("sha256") == 16 && naa_function_code("sort") == 26);
}

static void function_names(void) {
  char name[5000];
  memset(name, 'a', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  CHECK(naa_function_code(NULL) == 0 && naa_function_code("") == 0 && naa_function_code("Increment") == 0);
  CHECK(naa_function_code("\xff\xfe") == 0 && naa_function_code(name) == 0 && naa_function_code("%s%n") == 0);
}

static void options_init(void) {
  naa_options a, b;
  memset(&a, 0x55, sizeof a);
  OK(naa_options_init(&a, sizeof a));
  CHECK(a.struct_size == sizeof a && a.local_address == NULL && a.setup_timeout_ms == 0 + a.setup_timeout_ms);
  /* All zeros are the defaults too. */
  memset(&b, 0, sizeof b);
  b.struct_size = sizeof b;
  b.local_address = local_ip();
  const naa_region regions[] = {region(in, BYTES, NAA_INOUT)};
  naa_session *session = NULL;
  OK(naa_session_connect(server_address(), regions, 1, &b, &session));
  OK(naa_call(session, INCREMENT, 0, -1, NULL));
  OK(naa_session_close(session));
}

static void connects(void) {
  const naa_region regions[] = {region(in, BYTES, NAA_INPUT | NAA_SINGLE_SEND), region(NULL, 10000, NAA_INTERNAL),
                                region(out, BYTES, NAA_OUTPUT)};
  naa_session *session = NULL;
  char address[200];
  setenv("NAA_LOCAL_IP", local_ip(), 1);
  memset(in, 2, BYTES);
  snprintf(address, sizeof address, "%s", server_ip());
  OK(naa_session_connect(address, regions, 3, NULL, &session));
  /* Nothing of the caller's is kept but the regions' memory. */
  memset(address, 'x', sizeof address - 1);
  for (int times = 1; times <= 3; times++) {
    OK(naa_call(session, SUM, 0, 10000 * slowness(), NULL));
    all_are(out, BYTES, 2 * BYTES);
    memset(in, 99, BYTES);
  }
  for (int times = 1; times <= 3; times++) {
    OK(naa_call(session, COUNT, 0, 10000 * slowness(), NULL));
    all_are(out, BYTES, (unsigned)times);
  }
  OK(naa_session_close(session));
}

static void by_spec(void) {
  char spec[128];
  const naa_region regions[] = {region(in, BYTES, NAA_INPUT), region(out, BYTES, NAA_OUTPUT)};
  const naa_options own = options();
  naa_session *session = NULL, *second = NULL;
  snprintf(spec, sizeof spec, "%s:%u:102:1,%s:%u:102:1", server_ip(), server_port(), server_ip(), server_port());
  setenv("NAA_SPEC", spec, 1);
  for (int times = 0; times < 3; times++) {
    OK(naa_session_connect_spec(SUM, regions, 2, &own, &session));
    OK(naa_session_connect_spec(SUM, regions, 2, &own, &second));
    naa_session *third = (naa_session *)8;
    FAILS(NAA_ERROR_ENVIRONMENT, "in use", naa_session_connect_spec(SUM, regions, 2, &own, &third));
    CHECK(third == NULL);
    calls(session);
    calls(second);
    OK(naa_session_close(session));
    OK(naa_session_close(second));
  }
}

static void states_are_told(void) {
  naa_session *session = connected();
  int32_t state = -1;
  OK(naa_session_state(session, &state));
  CHECK(state == NAA_SESSION_IDLE);
  OK(naa_call_start(session, SLEEP, 100));
  OK(naa_session_state(session, &state));
  CHECK(state == NAA_SESSION_RUNNING);
  OK(naa_call_wait(session, -1, NULL));
  OK(naa_session_state(session, &state));
  CHECK(state == NAA_SESSION_IDLE);
  CHECK(strstr(naa_session_describe(session), local_ip()) != NULL);
  OK(naa_session_close(session));
}

static void descriptor(void) {
  naa_session *session = connected();
  struct pollfd event;
  memset(&event, 0, sizeof event);
  event.events = POLLIN;
  OK(naa_session_fd(session, &event.fd));
  CHECK(event.fd >= 0);
  for (int times = 0; times < 5; times++) {
    bool done = false;
    naa_outcome outcome;
    OK(naa_call_start(session, SLEEP, times == 0 ? 1500 : 20));
    const double limit = seconds() + 10 * slowness();
    int wakes = 0;
    for (;;) {
      OK(naa_call_test(session, &done, &outcome));
      if (done) {
        break;
      }
      CHECK(poll(&event, 1, 10000 * slowness()) == 1 && seconds() < limit);
      wakes++;
    }
    CHECK(outcome.function == SLEEP && wakes > 0 && wakes < 100);
  }
  OK(naa_session_close(session));
}

static void ranges(void) {
  naa_session *session = connected();
  memset(in, 1, BYTES);
  OK(naa_session_set_range(session, 0, BYTES - 8, 8));
  OK(naa_call(session, SUM, 0, 10000 * slowness(), NULL));
  all_are(out, BYTES, 8);
  OK(naa_session_set_range(session, 0, 0, 16));
  OK(naa_call(session, SUM, 0, 10000 * slowness(), NULL));
  all_are(out, BYTES, 24);
  OK(naa_session_set_range(session, 0, BYTES, 0));
  OK(naa_call(session, SUM, 1, 10000 * slowness(), NULL));
  all_are(out, BYTES, 25);
  calls(session);
  OK(naa_session_close(session));
}

static void call_and_outcome(void) {
  naa_session *session = connected();
  naa_outcome outcome;
  memset(&outcome, 0x55, sizeof outcome);
  OK(naa_call(session, SUM, 0, 10000 * slowness(), &outcome));
  CHECK(outcome.result == NAA_OK && outcome.function == SUM && outcome.return_code == 0 && outcome.user == 0);
  CHECK(outcome.last_output_bytes == BYTES && outcome.detail == 0 && outcome.produced[5] == 0);
  FAILS(NAA_ERROR_FUNCTION, "0x77", naa_call(session, FAIL, 0x77, 10000 * slowness(), &outcome));
  CHECK(outcome.result == NAA_ERROR_FUNCTION && outcome.return_code == 0x77 && outcome.last_output_bytes == 0);
  FAILS(NAA_ERROR_FUNCTION, "", naa_call(session, 99, 0, 10000 * slowness(), NULL));
  calls(session);
  OK(naa_session_close(session));
}

static void waits(void) {
  naa_session *session = connected();
  naa_outcome outcome;
  OK(naa_call_start(session, SLEEP, (unsigned)(200 * slowness())));
  FAILS(NAA_ERROR_TIMEOUT, "", naa_call_wait(session, 0, &outcome));
  const double start = seconds();
  FAILS(NAA_ERROR_TIMEOUT, "", naa_call_wait(session, 30, &outcome));
  CHECK(seconds() - start >= 0.03);
  OK(naa_call_wait(session, INT32_MIN, &outcome));
  CHECK(outcome.function == SLEEP);
  FAILS(NAA_ERROR_TIMEOUT, "goes on", naa_call(session, SLEEP, (unsigned)(100 * slowness()), 10, &outcome));
  bool done = false;
  while (!done) {
    OK(naa_call_test(session, &done, &outcome));
  }
  calls(session);
  OK(naa_session_close(session));
}

static void several(void) {
  enum { MANY = 8 };
  naa_session *sessions[MANY + 1];
  naa_outcome outcomes[MANY + 1];
  int64_t index = 0;
  for (int i = 0; i < MANY; i++) {
    sessions[i] = connected();
  }
  sessions[MANY] = NULL;
  OK(naa_call_wait_any(sessions, MANY + 1, 0, &index, NULL));
  CHECK(index == NAA_UNDEFINED);
  for (int i = 0; i < MANY; i++) {
    OK(naa_call_start(sessions[i], SLEEP, (unsigned)(20 * (MANY - i))));
  }
  bool seen[MANY] = {false};
  for (int i = 0; i < MANY; i++) {
    OK(naa_call_wait_any(sessions, MANY + 1, 20000 * slowness(), &index, &outcomes[0]));
    CHECK(index >= 0 && index < MANY && !seen[index] && outcomes[0].function == SLEEP);
    seen[index] = true;
  }
  for (int i = 0; i < MANY; i++) {
    OK(naa_call_start(sessions[i], i == 3 ? FAIL : SLEEP, 20));
  }
  FAILS(NAA_ERROR_FUNCTION, "", naa_call_wait_all(sessions, MANY + 1, 20000 * slowness(), outcomes));
  for (int i = 0; i < MANY; i++) {
    CHECK(outcomes[i].result == (i == 3 ? NAA_ERROR_FUNCTION : NAA_OK) && outcomes[i].function == (i == 3 ? FAIL : SLEEP));
    OK(naa_session_close(sessions[i]));
  }
  CHECK(outcomes[MANY].function == 0);
}

static void buffers(void) {
  naa_buffer *buffer = NULL, *own = NULL;
  static unsigned char memory[10000];
  OK(naa_buffer_alloc(5000, &buffer));
  OK(naa_buffer_wrap(memory, sizeof memory, &own));
  unsigned char *data = (unsigned char *)naa_buffer_data(buffer);
  CHECK(naa_buffer_size(buffer) == 5000 && naa_buffer_data(own) == memory && naa_buffer_size(own) == sizeof memory);
  CHECK(data != NULL && (uintptr_t)data % 4096 == 0);
  all_are(data, 5000, 0);
  const naa_options set = options();
  for (int times = 1; times <= 3; times++) {
    const naa_region regions[] = {region(data + 1, 4999, NAA_INOUT), region(memory, sizeof memory, NAA_INOUT)};
    naa_session *session = NULL;
    OK(naa_session_connect(server_address(), regions, 2, &set, &session));
    OK(naa_call(session, INCREMENT, 0, 10000 * slowness(), NULL));
    all_are(data + 1, 4999, (unsigned)times);
    all_are(memory, sizeof memory, (unsigned)times);
    OK(naa_session_close(session));
  }
  CHECK(data[0] == 0);
  OK(naa_buffer_free(buffer));
  OK(naa_buffer_free(own));
  OK(naa_buffer_free(NULL));
}

static void arguments_block(void) {
  unsigned char block[NAA_BLOCK_BYTES], status[NAA_BLOCK_BYTES];
  uint32_t numbers[4] = {4, 2, 3, 1}, sorted[4] = {0, 0, 0, 0};
  const int64_t values[] = {4, 1, 0};
  const naa_region regions[] = {region(block, NAA_BLOCK_BYTES, NAA_INPUT), region(numbers, sizeof numbers, NAA_INPUT),
                                region(status, NAA_BLOCK_BYTES, NAA_OUTPUT), region(sorted, sizeof sorted, NAA_OUTPUT)};
  const naa_options own = options();
  naa_session *session = NULL;
  naa_outcome outcome;
  OK(naa_session_connect(server_address(), regions, 4, &own, &session));
  OK(naa_arguments(block, naa_function_code("sort"), values, 3));
  OK(naa_call(session, naa_function_code("sort"), 0, 10000 * slowness(), &outcome));
  for (uint32_t i = 0; i < 4; i++) {
    CHECK(sorted[i] == i + 1);
  }
  CHECK(outcome.produced[0] == NAA_BLOCK_BYTES && outcome.produced[1] == sizeof sorted);
  OK(naa_session_close(session));
}

static void functions(void) {
  naa_session *session = connected();
  const naa_function *functions = NULL;
  size_t count = 0, found = 0;
  OK(naa_session_functions(session, &functions, &count));
  for (size_t i = 0; i < count; i++) {
    CHECK(functions[i].code >= 1 && functions[i].code <= 127 && (i == 0 || functions[i].code > functions[i - 1].code));
    CHECK(strlen(functions[i].name) > 0 && strlen(functions[i].parameters) > 0 && functions[i].description != NULL);
    found += functions[i].code == SUM && strcmp(functions[i].name, "sum") == 0;
  }
  CHECK(found == 1);
  calls(session);
  OK(naa_session_close(session));
}

static void function_of_a_name(void) {
  naa_session *session = connected();
  char name[] = "sum";
  int32_t code = 0;
  OK(naa_session_find_function(session, name, &code));
  memset(name, 'x', sizeof name - 1);
  CHECK(code == SUM);
  memset(in, 1, BYTES);
  OK(naa_call(session, code, 3, 10000 * slowness(), NULL));
  all_are(out, BYTES, BYTES + 3);
  OK(naa_session_find_function(session, "sleep", &code));
  CHECK(code == SLEEP);
  FAILS(NAA_ERROR_ARGUMENT, "it has increment", naa_session_find_function(session, "frobnicate", &code));
  CHECK(code == 0 && strstr(naa_last_error(), "sleep") != NULL && strstr(naa_last_error(), "frobnicate") != NULL);
  calls(session);
  OK(naa_session_close(session));
}

/* More regions than a message has, and results to each. */
static void layouts(void) {
  enum { REGIONS = 40 };
  static unsigned char bytes[REGIONS][2000];
  for (int32_t layout = NAA_LAYOUT_ASYMMETRIC; layout <= NAA_LAYOUT_AUTO; layout++) {
    naa_region regions[REGIONS];
    for (size_t i = 0; i < REGIONS; i++) {
      regions[i] = region(bytes[i], 1 + 37 * i, NAA_INOUT);
      memset(bytes[i], (int)i, sizeof bytes[i]);
    }
    naa_options own = options();
    own.layout = layout;
    own.packed_bytes = 700;
    naa_session *session = NULL;
    OK(naa_session_connect(server_address(), regions, REGIONS, &own, &session));
    OK(naa_call(session, INCREMENT, 0, 5000 * slowness(), NULL));
    for (size_t i = 0; i < REGIONS; i++) {
      CHECK(bytes[i][0] == i + 1 && bytes[i][37 * i] == i + 1 && bytes[i][37 * i + 1] == i);
    }
    OK(naa_session_close(session));
  }
}

static const struct row rows[] = {
    {"naa_version", "use", version, 5, false},
    {"naa_last_error", "use, each thread has its own", last_error, 10, false},
    {"naa_result_name", "use", result_names, 5, false},
    {"naa_result_name", "arguments", result_numbers, 5, false},
    {"naa_function_code", "use", function_codes, 5, false},
    {"naa_function_code", "arguments", function_names, 5, false},
    {"naa_options_init", "use", options_init, 10, false},
    {"naa_session_connect", "use", connects, 10, false},
    {"naa_session_connect_spec", "use", by_spec, 10, false},
    {"naa_session_connect", "every layout", layouts, 20, false},
    {"naa_session_state", "use, and naa_session_describe", states_are_told, 10, false},
    {"naa_session_fd", "use", descriptor, 20, false},
    {"naa_session_set_range", "use, and naa_session_set_range_all", ranges, 10, false},
    {"naa_session_functions", "use", functions, 10, false},
    {"naa_session_find_function", "use", function_of_a_name, 10, false},
    {"naa_call", "use", call_and_outcome, 10, false},
    {"naa_call_wait", "use, and naa_call_start, naa_call_test", waits, 10, false},
    {"naa_call_wait_any", "use, and naa_call_wait_all", several, 20, false},
    {"naa_buffer_alloc", "use", buffers, 10, false},
    {"naa_buffer_wrap", "use", buffers, 10, false},
    {"naa_buffer_data", "use", buffers, 10, false},
    {"naa_buffer_size", "use", buffers, 10, false},
    {"naa_buffer_free", "use", buffers, 10, false},
    {"naa_arguments", "use", arguments_block, 10, false},
};

MAIN(rows)
