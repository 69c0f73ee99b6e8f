/* Every function of naa_events.h with NULL, nonsense and numbers out of range, and in states that are wrong for it. */
#include "events.h"

static struct seat seat;
static naa_event event;
static naa_worker_stats stats;
static int32_t number;

typedef int32_t with_worker(naa_worker *worker);

static int32_t next_of(naa_worker *worker) { return naa_worker_next(worker, 0, &event); }
static int32_t fd_of(naa_worker *worker) { return naa_worker_fd(worker, &number); }
static int32_t stats_of(naa_worker *worker) { return naa_worker_get_stats(worker, &stats); }
static int32_t described(naa_worker *worker) {
  return naa_worker_describe(worker) == NULL ? NAA_ERROR_ARGUMENT : NAA_OK;
}
/* NULL may be closed. */
static int32_t close_of(naa_worker *worker) {
  OK(naa_worker_close(NULL));
  return worker == NULL ? naa_worker_next(NULL, 0, &event) : naa_worker_close(worker);
}

/* Nothing that is no worker is read through. */
static void pointers(with_worker *call) {
  void *bad[NONSENSE];
  naa_worker *worker = subscribed(&seat);
  FAILS(NAA_ERROR_ARGUMENT, "NULL", call(NULL));
  nonsense(bad);
  for (int i = 0; i < NONSENSE; i++) {
    FAILS(NAA_ERROR_ARGUMENT, "none", call((naa_worker *)bad[i]));
  }
  FAILS(NAA_ERROR_ARGUMENT, "none", call((naa_worker *)(void *)((char *)worker + 1)));
  seat_put(&seat, 7, 7);
  const naa_event kept = next_is(worker, 7, 7);
  FAILS(NAA_ERROR_ARGUMENT, "none", call((naa_worker *)(uintptr_t)kept.token));
  OK(naa_event_release(kept.token));
  OK(naa_worker_close(worker));
  FAILS(NAA_ERROR_ARGUMENT, "freed", call(worker));
  seat_close(&seat);
}

static void next_pointers(void) { pointers(next_of); }
static void fd_pointers(void) { pointers(fd_of); }
static void stats_pointers(void) { pointers(stats_of); }
static void describe_pointers(void) { pointers(described); }
static void close_pointers(void) { pointers(close_of); }

static void places_for_results(void) {
  naa_worker *worker = subscribed(&seat);
  seat_put(&seat, 1, 1);
  FAILS(NAA_ERROR_ARGUMENT, "NULL", naa_worker_next(worker, 0, NULL));
  FAILS(NAA_ERROR_ARGUMENT, "NULL", naa_worker_fd(worker, NULL));
  FAILS(NAA_ERROR_ARGUMENT, "NULL", naa_worker_get_stats(worker, NULL));
  /* Not taken by the one that had no place for it. */
  event = next_is(worker, 1, 1);
  OK(naa_event_release(event.token));
  OK(naa_worker_close(worker));
  seat_close(&seat);
}

static void tokens(void) {
  naa_worker *worker = subscribed(&seat);
  const uint64_t bad[] = {0, 1, UINT64_MAX, UINT64_MAX >> 1, (uint64_t)(uintptr_t)worker, (uint64_t)(uintptr_t)&event};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    FAILS(NAA_ERROR_ARGUMENT, "an event is needed", naa_event_release(bad[i]));
  }
  seat_put(&seat, 1, 1);
  event = next_is(worker, 1, 1);
  FAILS(NAA_ERROR_ARGUMENT, "an event is needed", naa_event_release(event.token + 1));
  OK(naa_event_release(event.token));
  FAILS(NAA_ERROR_ARGUMENT, "freed", naa_event_release(event.token));
  CHECK(seat_held(&seat) == 0);
  OK(naa_worker_close(worker));
  seat_close(&seat);
}

static void copy_arguments(void) {
  naa_worker *worker = subscribed(&seat);
  unsigned char copy[8] = {0};
  FAILS(NAA_ERROR_ARGUMENT, "an event is needed", naa_event_copy(0, 0, copy, 1));
  seat_put(&seat, 1, 4);
  event = next_is(worker, 1, 4);
  FAILS(NAA_ERROR_ARGUMENT, "an event is needed", naa_event_copy(event.token + 1, 0, copy, 1));
  FAILS(NAA_ERROR_ARGUMENT, "5 bytes at 0", naa_event_copy(event.token, 0, copy, 5));
  FAILS(NAA_ERROR_ARGUMENT, "which has 4", naa_event_copy(event.token, 4, copy, 1));
  FAILS(NAA_ERROR_ARGUMENT, "which has 4", naa_event_copy(event.token, UINT64_MAX, copy, 2));
  FAILS(NAA_ERROR_ARGUMENT, "to is NULL", naa_event_copy(event.token, 0, NULL, 1));
  OK(naa_event_release(event.token));
  FAILS(NAA_ERROR_ARGUMENT, "freed", naa_event_copy(event.token, 0, copy, 1));
  OK(naa_worker_close(worker));
  seat_close(&seat);
}

static void again_arguments(void) {
  naa_worker *worker = subscribed(&seat);
  bool again = true;
  FAILS(NAA_ERROR_ARGUMENT, "an event is needed", naa_event_delivered_again(0, &again));
  seat_put(&seat, 1, 4);
  event = next_is(worker, 1, 4);
  FAILS(NAA_ERROR_ARGUMENT, "an event is needed", naa_event_delivered_again(event.token + 1, &again));
  FAILS(NAA_ERROR_ARGUMENT, "again is NULL", naa_event_delivered_again(event.token, NULL));
  OK(naa_event_delivered_again(event.token, &again));
  CHECK(!again);
  OK(naa_event_release(event.token));
  FAILS(NAA_ERROR_ARGUMENT, "freed", naa_event_delivered_again(event.token, &again));
  OK(naa_worker_close(worker));
  seat_close(&seat);
}

static void refuse(const char *words, const char *source, const naa_worker_options *own) {
  naa_worker *worker = (naa_worker *)(void *)&seat;
  FAILS(NAA_ERROR_ARGUMENT, words, naa_worker_open(source, own, &worker));
  CHECK(worker == NULL);
}

static void option_arguments(void) {
  naa_worker_options own;
  FAILS(NAA_ERROR_ARGUMENT, "NULL", naa_worker_options_init(NULL, sizeof own));
  FAILS(NAA_ERROR_ARGUMENT, "sizeof", naa_worker_options_init(&own, 0));
  FAILS(NAA_ERROR_ARGUMENT, "sizeof", naa_worker_options_init(&own, sizeof own - 1));
  FAILS(NAA_ERROR_ARGUMENT, "sizeof", naa_worker_options_init(&own, SIZE_MAX));
#define WITH(words, change)                                                                                  \
  do {                                                                                                       \
    own = worker_options();                                                                                  \
    change;                                                                                                  \
    refuse(words, "unix:/nowhere", &own);                                                                    \
  } while (0)
  WITH("struct_size", own.struct_size = 0);
  WITH("struct_size", own.struct_size = UINT32_MAX);
  WITH("slots", own.slots = UINT32_MAX);
  WITH("slots", own.slot_bytes = 1);
  WITH("4 GiB", (own.slots = 65536, own.slot_bytes = 1 << 20));
  WITH("data_ids", own.first_data_id = 65536);
  WITH("data_ids", (own.first_data_id = UINT32_MAX, own.data_ids = UINT32_MAX));
  WITH("has_member", own.member = 1);
  WITH("member", (own.has_member = 1, own.member = UINT32_MAX));
  WITH("setup_timeout_ms", own.setup_timeout_ms = -5);
  WITH("probe_interval_ms", own.probe_interval_ms = -2);
  WITH("silence_ms", own.silence_ms = -1);
  WITH("reconnect_ms", own.reconnect_ms = INT32_MIN);
  WITH("wait", own.wait = 3);
  WITH("provider", own.provider = -1);
  WITH("local_address", own.local_address = "nowhere");
  WITH("again", own.again = 2);
  WITH("name", own.name = "a name of more than thirty-two bytes");
  WITH("name", own.name = "\x1b[2J");
  WITH("name", own.name = "\xff");
}

static void open_arguments(void) {
  naa_worker_options own = worker_options();
  own.setup_timeout_ms = 300 * slowness();
  FAILS(NAA_ERROR_ARGUMENT, "NULL", naa_worker_open("unix:/nowhere", &own, NULL));
  refuse("NULL", NULL, &own);
  refuse("", "", &own);
  refuse("unix:PATH", "unix:", &own);
  refuse("UTF-8", "\xff", &own);
  refuse("port", "127.0.0.1:0", &own);
  naa_worker *worker = NULL;
  FAILS(NAA_ERROR_UNREACHABLE, "unix:/nowhere", naa_worker_open("unix:/nowhere", &own, &worker));
  /* An accelerator that is no bridge. */
  own.setup_timeout_ms = 10000 * slowness();
  FAILS(NAA_ERROR_FUNCTION, "does not offer", naa_worker_open(server_address(), &own, &worker));
  CHECK(worker == NULL);
}

static void *wait_long(void *worker) {
  naa_event own;
  int32_t result;
  do {
    result = naa_worker_next((naa_worker *)worker, -1, &own);
    /* The other thread may be the one that uses it. */
  } while (result == NAA_ERROR_STATE);
  OK(result);
  OK(naa_event_release(own.token));
  return NULL;
}

static void busy(void) {
  pthread_t thread;
  naa_worker *worker = subscribed(&seat);
  CHECK(pthread_create(&thread, NULL, wait_long, worker) == 0);
  while (naa_worker_get_stats(worker, &stats) == NAA_OK) {
    pause_ms(1);
  }
  FAILS(NAA_ERROR_STATE, "another thread", naa_worker_get_stats(worker, &stats));
  FAILS(NAA_ERROR_STATE, "another thread", naa_worker_next(worker, 0, &event));
  FAILS(NAA_ERROR_STATE, "another thread", naa_worker_fd(worker, &number));
  FAILS(NAA_ERROR_STATE, "another thread", naa_worker_close(worker));
  CHECK(naa_worker_describe(worker) == NULL);
  seat_put(&seat, 3, 3);
  CHECK(pthread_join(thread, NULL) == 0);
  OK(naa_worker_close(worker));
  seat_close(&seat);
}

static void over(void) {
  naa_worker *worker = subscribed(&seat);
  seat_put(&seat, 3, 3);
  __atomic_store_n(word(seat.events, 0), 99, __ATOMIC_SEQ_CST);
  event = next_is(worker, 3, 3);
  naa_event none;
  FAILS(NAA_ERROR_PEER, "breaks the protocol", naa_worker_next(worker, 1000, &none));
  FAILS(NAA_ERROR_OVER, "breaks the protocol", naa_worker_next(worker, 1000, &none));
  FAILS(NAA_ERROR_OVER, "", naa_worker_next(worker, 0, &none));
  CHECK(none.data == NULL && strncmp(naa_worker_describe(worker), "over", 4) == 0);
  OK(naa_worker_fd(worker, &number));
  all_are(event.data, 3, 3);
  OK(naa_event_release(event.token));
  OK(naa_worker_close(worker));
  seat_close(&seat);
}

static const struct row rows[] = {
    {"naa_worker_next", "arguments, pointers", next_pointers, 20, false},
    {"naa_worker_next", "arguments, places for results, also of others", places_for_results, 20, false},
    {"naa_worker_next", "states, another thread uses the worker, also of others", busy, 20, false},
    {"naa_worker_next", "states, the bridge broke the protocol", over, 20, false},
    {"naa_worker_fd", "arguments, pointers", fd_pointers, 20, false},
    {"naa_worker_get_stats", "arguments, pointers", stats_pointers, 20, false},
    {"naa_worker_describe", "arguments, pointers", describe_pointers, 20, false},
    {"naa_worker_close", "arguments, pointers", close_pointers, 20, false},
    {"naa_event_copy", "arguments", copy_arguments, 20, false},
    {"naa_event_delivered_again", "arguments", again_arguments, 20, false},
    {"naa_event_release", "arguments", tokens, 20, false},
    {"naa_worker_options_init", "arguments, and options", option_arguments, 20, false},
    {"naa_worker_open", "arguments", open_arguments, 30, false},
};

MAIN(rows)
