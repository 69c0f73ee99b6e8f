/* Every function of naa.h with NULL, nonsense, and numbers out of range. */
#include "native.h"

typedef int32_t with_session(naa_session *session);

/* Nothing that is no session is read through. */
static void pointers(with_session *call) {
  void *bad[NONSENSE];
  naa_buffer *buffer = NULL;
  naa_session *session = connected();
  FAILS(NAA_ERROR_ARGUMENT, "NULL", call(NULL));
  nonsense(bad);
  for (int i = 0; i < NONSENSE; i++) {
    FAILS(NAA_ERROR_ARGUMENT, "none", call((naa_session *)bad[i]));
  }
  OK(naa_buffer_alloc(8, &buffer));
  FAILS(NAA_ERROR_ARGUMENT, "none", call((naa_session *)(void *)buffer));
  FAILS(NAA_ERROR_ARGUMENT, "none", call((naa_session *)(void *)((char *)session + 1)));
  OK(naa_buffer_free(buffer));
  calls(session);
  OK(naa_session_close(session));
}

#define POINTERS(row, call)                                                                                  \
  static int32_t do_##row(naa_session *session) { return call; }                                             \
  static void row(void) { pointers(do_##row); }

static bool done;
static int32_t number;
static int64_t place;
static size_t many;
static const naa_function *listed;
static naa_outcome outcome;

static int32_t described(naa_session *session) {
  return naa_session_describe(session) == NULL ? NAA_ERROR_ARGUMENT : NAA_OK;
}
/* NULL is passed over, and closing it is allowed; so these have no row for it. */
static int32_t any_of(naa_session *session) {
  naa_session *sessions[1] = {session};
  return session == NULL ? naa_call_wait_any(NULL, 1, 0, &place, NULL)
                         : naa_call_wait_any(sessions, 1, 1000, &place, NULL);
}
static int32_t all_of(naa_session *session) {
  naa_session *sessions[1] = {session};
  return session == NULL ? naa_call_wait_all(NULL, 1, 0, NULL) : naa_call_wait_all(sessions, 1, 1000, &outcome);
}
static int32_t close_of(naa_session *session) {
  OK(naa_session_close(NULL));
  return session == NULL ? naa_session_state(NULL, &number) : naa_session_close(session);
}

POINTERS(start, naa_call_start(session, SUM, 0))
POINTERS(call_row, naa_call(session, SUM, 0, 1000, &outcome))
POINTERS(test_row, naa_call_test(session, &done, &outcome))
POINTERS(wait_row, naa_call_wait(session, 1000, &outcome))
POINTERS(any, any_of(session))
POINTERS(all, all_of(session))
POINTERS(state, naa_session_state(session, &number))
POINTERS(describe, described(session))
POINTERS(fd, naa_session_fd(session, &number))
POINTERS(range, naa_session_set_range(session, 0, 0, 1))
POINTERS(functions, naa_session_functions(session, &listed, &many))
POINTERS(find, naa_session_find_function(session, "sum", &number))
POINTERS(range_all, naa_session_set_range_all(session, 0))
POINTERS(closes, close_of(session))

static void numbers(void) {
  naa_session *session = connected();
  const int32_t codes[] = {0, -1, 128, 255, 256 + SUM, INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    FAILS(NAA_ERROR_ARGUMENT, "1 to 127", naa_call_start(session, codes[i], 0));
    FAILS(NAA_ERROR_ARGUMENT, "1 to 127", naa_call(session, codes[i], 0, 1000, &outcome));
  }
  FAILS(NAA_ERROR_ARGUMENT, "24 bits", naa_call_start(session, SUM, 1u << 24));
  FAILS(NAA_ERROR_ARGUMENT, "24 bits", naa_call(session, SUM, UINT32_MAX, 1000, NULL));
  calls(session);
  OK(naa_session_close(session));
}

static void ranges(void) {
  naa_session *session = connected();
  const size_t regions[] = {2, 31, SIZE_MAX, SIZE_MAX / 2};
  for (size_t i = 0; i < sizeof regions / sizeof *regions; i++) {
    FAILS(NAA_ERROR_ARGUMENT, "", naa_session_set_range(session, regions[i], 0, 1));
    FAILS(NAA_ERROR_ARGUMENT, "", naa_session_set_range_all(session, regions[i]));
  }
  /* An output is sent never. */
  FAILS(NAA_ERROR_ARGUMENT, "", naa_session_set_range(session, 1, 0, 1));
  const uint64_t bad[][2] = {{0, BYTES + 1}, {BYTES, 1}, {BYTES + 1, 0}, {1, UINT64_MAX}, {UINT64_MAX, 1}, {UINT64_MAX, UINT64_MAX}, {(uint64_t)1 << 63, (uint64_t)1 << 63}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    FAILS(NAA_ERROR_ARGUMENT, "64 bytes", naa_session_set_range(session, 0, bad[i][0], bad[i][1]));
  }
  calls(session);
  OK(naa_session_close(session));
}

static void places_for_results(void) {
  naa_session *session = connected();
  FAILS(NAA_ERROR_ARGUMENT, "NULL", naa_session_state(session, NULL));
  FAILS(NAA_ERROR_ARGUMENT, "NULL", naa_session_fd(session, NULL));
  FAILS(NAA_ERROR_ARGUMENT, "NULL", naa_call_wait_any(&session, 1, 0, NULL, NULL));
  OK(naa_call_start(session, SLEEP, 20));
  FAILS(NAA_ERROR_ARGUMENT, "NULL", naa_call_test(session, NULL, &outcome));
  OK(naa_call_wait(session, -1, NULL));
  calls(session);
  OK(naa_session_close(session));
}

static void arrays_of_sessions(void) {
  naa_session *session = connected(), *twice[2];
  twice[0] = twice[1] = session;
  OK(naa_call_start(session, SLEEP, 20));
  FAILS(NAA_ERROR_ARGUMENT, "twice", naa_call_wait_any(twice, 2, 1000, &place, NULL));
  CHECK(place == NAA_UNDEFINED);
  FAILS(NAA_ERROR_ARGUMENT, "twice", naa_call_wait_all(twice, 2, 1000, NULL));
  FAILS(NAA_ERROR_ARGUMENT, "", naa_call_wait_any(twice, SIZE_MAX, 1000, &place, NULL));
  FAILS(NAA_ERROR_ARGUMENT, "", naa_call_wait_all(twice, SIZE_MAX / 8, 1000, NULL));
  FAILS(NAA_ERROR_ARGUMENT, "", naa_call_wait_any((naa_session *const *)(void *)((char *)twice + 1), 1, 1000, &place, NULL));
  OK(naa_call_wait_all(NULL, 0, 1000, NULL));
  OK(naa_call_wait(session, -1, NULL));
  OK(naa_session_close(session));
}

static void refuse(int32_t result, const char *words, const char *address, const naa_region *regions, size_t count,
                   const naa_options *set) {
  naa_session *session = (naa_session *)8;
  FAILS(result, words, naa_session_connect(address, regions, count, set, &session));
  CHECK(session == NULL);
}

static void connect_arguments(void) {
  const naa_options own = options();
  const char *to = server_address();
  naa_region regions[40];
  for (int i = 0; i < 40; i++) {
    regions[i] = region(in, 8, NAA_INPUT);
  }
  FAILS(NAA_ERROR_ARGUMENT, "session is NULL", naa_session_connect(to, regions, 1, &own, NULL));
  refuse(NAA_ERROR_ARGUMENT, "address is NULL", NULL, regions, 1, &own);
  refuse(NAA_ERROR_ARGUMENT, "regions is NULL", to, NULL, 1, &own);
  refuse(NAA_ERROR_ARGUMENT, "", to, (naa_region *)(void *)((char *)regions + 1), 1, &own);
  refuse(NAA_ERROR_ARGUMENT, "", to, regions, 0, &own);
  const size_t counts[] = {32, 40, 1000000, (size_t)1 << 32, SIZE_MAX / sizeof *regions, SIZE_MAX};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    refuse(NAA_ERROR_ARGUMENT, "", to, regions, counts[i], &own);
  }
  const char *const addresses[] = {"", ":", "1.2.3.4:", "1.2.3.4:0", "1.2.3.4:65536", "1.2.3.4:-1", "[::1", "[]:1", "::1:12345:", "a b", "\xff", "%s%n", "1.2.3.4:12345:1"};
  for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
    naa_session *session = (naa_session *)8;
    const int32_t result = naa_session_connect(addresses[i], regions, 1, &own, &session);
    if ((result != NAA_ERROR_ARGUMENT && result != NAA_ERROR_UNREACHABLE) || session != NULL) {
      printf("address \"%s\": %s\n", addresses[i], naa_result_name(result));
      CHECK(false);
    }
  }
  refuse(NAA_ERROR_UNREACHABLE, "no.such.host.invalid", "no.such.host.invalid", regions, 1, &own);
}

static void bad_region(const char *words, void *addr, uint64_t size, uint32_t flags) {
  const naa_options own = options();
  const naa_region regions[] = {region(in, 8, NAA_INPUT), region(addr, size, flags)};
  refuse(NAA_ERROR_ARGUMENT, words, server_address(), regions, 2, &own);
}

static void region_arguments(void) {
  unsigned char *pages = (unsigned char *)mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_READ) == 0 && munmap(pages + 8192, 4096) == 0);
  bad_region("region 1: addr is NULL", NULL, 1, NAA_OUTPUT);
  bad_region("region 1", in, 8, 0);
  bad_region("region 1", in, 8, 16);
  bad_region("region 1", in, 8, UINT32_MAX);
  bad_region("region 1", in, 8, NAA_INTERNAL);
  bad_region("region 1", NULL, 8, NAA_INTERNAL | NAA_SINGLE_SEND);
  bad_region("region 1", in, ((uint64_t)1 << 31) + 1, NAA_INPUT);
  bad_region("region 1", NULL, ((uint64_t)1 << 31) + 1, NAA_INTERNAL);
  bad_region("region 1", in, UINT64_MAX, NAA_INPUT);
  bad_region("region 1", (void *)(uintptr_t)-8, 16, NAA_INPUT);
  bad_region("region 1", (void *)16, 16, NAA_INPUT);
  bad_region("region 1", pages, 2 * 4096, NAA_OUTPUT);
  bad_region("region 1", pages, 3 * 4096, NAA_INPUT);
  munmap(pages, 2 * 4096);
  bad_region("region 1", pages, 4096, NAA_INPUT);
}

static void option_arguments(void) {
  const naa_region regions[] = {region(in, 8, NAA_INPUT)};
  const naa_options good = options();
  naa_options bad;
#define BAD(member, value)                                                                                   \
  do {                                                                                                       \
    bad = good;                                                                                              \
    bad.member = value;                                                                                      \
    refuse(NAA_ERROR_ARGUMENT, #member, server_address(), regions, 1, &bad);                                 \
  } while (0)
  BAD(struct_size, 0);
  BAD(struct_size, 4);
  BAD(struct_size, UINT32_MAX);
  BAD(provider, 3);
  BAD(provider, -1);
  BAD(wait, 3);
  BAD(dialect, 77);
  BAD(setup_timeout_ms, -1);
  BAD(probe_interval_ms, -2);
  BAD(silence_ms, INT32_MIN);
  BAD(layout, 5);
  BAD(layout, INT32_MIN);
  BAD(call_timeout_ms, -2);
  BAD(local_address, "here");
  FAILS(NAA_ERROR_ARGUMENT, "NULL", naa_options_init(NULL, sizeof bad));
  FAILS(NAA_ERROR_ARGUMENT, "", naa_options_init(&bad, 0));
  FAILS(NAA_ERROR_ARGUMENT, "", naa_options_init(&bad, sizeof bad - 1));
  FAILS(NAA_ERROR_ARGUMENT, "", naa_options_init(&bad, SIZE_MAX));
}

static void spec_arguments(void) {
  const naa_region regions[] = {region(in, 8, NAA_INPUT)};
  const naa_options own = options();
  naa_session *session = NULL;
  unsetenv("NAA_SPEC");
  FAILS(NAA_ERROR_ENVIRONMENT, "NAA_SPEC is not set", naa_session_connect_spec(SUM, regions, 1, &own, &session));
  setenv("NAA_SPEC", "1.2.3.4:1:102:1", 1);
  FAILS(NAA_ERROR_ARGUMENT, "1 to 127", naa_session_connect_spec(0, regions, 1, &own, &session));
  FAILS(NAA_ERROR_ARGUMENT, "1 to 127", naa_session_connect_spec(-5, regions, 1, &own, &session));
  FAILS(NAA_ERROR_ENVIRONMENT, "", naa_session_connect_spec(5, regions, 1, &own, &session));
  FAILS(NAA_ERROR_ARGUMENT, "NULL", naa_session_connect_spec(SUM, NULL, 1, &own, &session));
  FAILS(NAA_ERROR_ARGUMENT, "NULL", naa_session_connect_spec(SUM, regions, 1, &own, NULL));
  const char *const bad[] = {"x", "1.2.3.4:1:1", "1.2.3.4:99999:102:1", "1.2.3.4:1:200:1", ""};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    setenv("NAA_SPEC", bad[i], 1);
    FAILS(NAA_ERROR_ENVIRONMENT, "NAA_SPEC", naa_session_connect_spec(SUM, regions, 1, &own, &session));
  }
}

static void buffer_arguments(void) {
  void *bad[NONSENSE];
  naa_buffer *buffer = NULL, *second = NULL;
  static unsigned char own[200];
  naa_session *session = connected();
  FAILS(NAA_ERROR_ARGUMENT, "NULL", naa_buffer_alloc(8, NULL));
  FAILS(NAA_ERROR_MEMORY, "", naa_buffer_alloc((uint64_t)1 << 60, &buffer));
  FAILS(NAA_ERROR_MEMORY, "", naa_buffer_alloc(UINT64_MAX, &buffer));
  FAILS(NAA_ERROR_ARGUMENT, "NULL", naa_buffer_wrap(own, 8, NULL));
  FAILS(NAA_ERROR_ARGUMENT, "NULL", naa_buffer_wrap(NULL, 8, &buffer));
  FAILS(NAA_ERROR_ARGUMENT, "", naa_buffer_wrap(own, 0, &buffer));
  FAILS(NAA_ERROR_ARGUMENT, "", naa_buffer_wrap(own, UINT64_MAX, &buffer));
  FAILS(NAA_ERROR_ARGUMENT, "", naa_buffer_wrap((void *)64, 8, &buffer));
  OK(naa_buffer_wrap(own, 100, &buffer));
  FAILS(NAA_ERROR_ARGUMENT, "another", naa_buffer_wrap(own + 99, 10, &second));
  CHECK(naa_buffer_data(NULL) == NULL && naa_buffer_size(NULL) == 0);
  nonsense(bad);
  for (int i = 0; i < NONSENSE; i++) {
    naa_buffer *none = (naa_buffer *)bad[i];
    CHECK(naa_buffer_data(none) == NULL && naa_buffer_size(none) == 0);
    FAILS(NAA_ERROR_ARGUMENT, "", naa_buffer_free(none));
  }
  CHECK(naa_buffer_data((naa_buffer *)(void *)session) == NULL);
  FAILS(NAA_ERROR_ARGUMENT, "", naa_buffer_free((naa_buffer *)(void *)session));
  OK(naa_buffer_free(buffer));
  FAILS(NAA_ERROR_ARGUMENT, "", naa_buffer_free(buffer));
  CHECK(naa_buffer_data(buffer) == NULL && naa_buffer_size(buffer) == 0);
  calls(session);
  OK(naa_session_close(session));
}

static void names_of_functions(void) {
  naa_session *session = connected();
  char name[5000];
  memset(name, 'a', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  const char *const none[] = {"", "Sum", "sum ", "%s%n", "sum\n", name};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    FAILS(NAA_ERROR_ARGUMENT, "has no function", naa_session_find_function(session, none[i], &number));
    CHECK(number == 0);
  }
  FAILS(NAA_ERROR_ARGUMENT, "UTF-8", naa_session_find_function(session, "\xff\xfe", &number));
  FAILS(NAA_ERROR_ARGUMENT, "name is NULL", naa_session_find_function(session, NULL, &number));
  FAILS(NAA_ERROR_ARGUMENT, "function is NULL", naa_session_find_function(session, "sum", NULL));
  FAILS(NAA_ERROR_ARGUMENT, "functions is NULL", naa_session_functions(session, NULL, &many));
  FAILS(NAA_ERROR_ARGUMENT, "count is NULL", naa_session_functions(session, &listed, NULL));
  calls(session);
  OK(naa_session_close(session));
}

static void block_arguments(void) {
  unsigned char block[NAA_BLOCK_BYTES];
  const int64_t values[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  FAILS(NAA_ERROR_ARGUMENT, "NULL", naa_arguments(NULL, 18, values, 3));
  FAILS(NAA_ERROR_ARGUMENT, "NULL", naa_arguments(block, 18, NULL, 3));
  FAILS(NAA_ERROR_ARGUMENT, "", naa_arguments(block, 18, values, 2));
  FAILS(NAA_ERROR_ARGUMENT, "", naa_arguments(block, 18, values, 8));
  FAILS(NAA_ERROR_ARGUMENT, "", naa_arguments(block, 18, values, SIZE_MAX));
  FAILS(NAA_ERROR_ARGUMENT, "3 values", naa_arguments(block, 18, values, 1000000));
  FAILS(NAA_ERROR_ARGUMENT, "3 values, and 0 are given", naa_arguments(block, 18, values, 0));
  const int32_t none[] = {0, 1, 15, 27, 64, 127, -1, 256 + 18, INT32_MAX};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    FAILS(NAA_ERROR_ARGUMENT, "", naa_arguments(block, none[i], values, 3));
  }
}

/* Who is not there, or does not listen. */
static void nobody(void) {
  const naa_region regions[] = {region(in, 8, NAA_INPUT)};
  naa_options own = options();
  char other_port[128];
  snprintf(other_port, sizeof other_port, "%s:%u", server_ip(), server_port() + 1u);
  refuse(NAA_ERROR_REFUSED, "", other_port, regions, 1, &own);
  own.setup_timeout_ms = 300 * slowness();
  const double start = seconds();
  refuse(NAA_ERROR_UNREACHABLE, "", is_embedded() ? "127.250.250.250" : "10.9.0.77", regions, 1, &own);
  CHECK(seconds() - start < 3 * slowness());
  own.local_address = "192.0.2.55";
  refuse(NAA_ERROR_DEVICE, "192.0.2.55", server_address(), regions, 1, &own);
}

static const struct row rows[] = {
    {"naa_call_start", "arguments, pointers", start, 10, false},
    {"naa_call", "arguments, pointers", call_row, 10, false},
    {"naa_call", "arguments, numbers", numbers, 10, false},
    {"naa_call_test", "arguments, pointers", test_row, 10, false},
    {"naa_call_wait", "arguments, pointers", wait_row, 10, false},
    {"naa_call_wait_any", "arguments, pointers", any, 10, false},
    {"naa_call_wait_any", "arguments, arrays, also of naa_call_wait_all", arrays_of_sessions, 10, false},
    {"naa_call_wait_all", "arguments, pointers", all, 10, false},
    {"naa_session_state", "arguments, pointers", state, 10, false},
    {"naa_session_state", "arguments, places for results, also of others", places_for_results, 10, false},
    {"naa_session_describe", "arguments, pointers", describe, 10, false},
    {"naa_session_fd", "arguments, pointers", fd, 10, false},
    {"naa_session_functions", "arguments, pointers", functions, 10, false},
    {"naa_session_find_function", "arguments, pointers", find, 10, false},
    {"naa_session_find_function", "arguments, also of naa_session_functions", names_of_functions, 10, false},
    {"naa_session_set_range", "arguments, pointers", range, 10, false},
    {"naa_session_set_range", "arguments, numbers, also of naa_session_set_range_all", ranges, 10, false},
    {"naa_session_set_range_all", "arguments, pointers", range_all, 10, false},
    {"naa_session_close", "arguments, pointers", closes, 10, false},
    {"naa_session_connect", "arguments", connect_arguments, 20, false},
    {"naa_session_connect", "arguments, regions", region_arguments, 10, false},
    {"naa_session_connect", "errors, nobody is there", nobody, 20, false},
    {"naa_options_init", "arguments, and options", option_arguments, 10, false},
    {"naa_session_connect_spec", "arguments", spec_arguments, 10, false},
    {"naa_buffer_alloc", "arguments, also of naa_buffer_wrap", buffer_arguments, 10, false},
    {"naa_buffer_wrap", "arguments", buffer_arguments, 10, false},
    {"naa_buffer_data", "arguments", buffer_arguments, 10, false},
    {"naa_buffer_size", "arguments", buffer_arguments, 10, false},
    {"naa_buffer_free", "arguments", buffer_arguments, 10, false},
    {"naa_arguments", "arguments", block_arguments, 10, false},
};

MAIN(rows)
