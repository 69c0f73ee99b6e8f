/* Every function of naa_events.h as it is meant to be used. */
#include "events.h"

static struct seat seat;

static void options_of_all_kinds(void) {
  naa_worker_options own;
  memset(&own, 0xee, sizeof own);
  OK(naa_worker_options_init(&own, sizeof own));
  CHECK(own.struct_size == sizeof own && own.slots == 0 && own.name == NULL);
  own = worker_options();
  own.name = "capi";
  own.first_data_id = 65535;
  own.data_ids = 1;
  own.has_member = 1;
  own.member = 65535;
  own.wait = NAA_WAIT_BLOCK;
  own.setup_timeout_ms = 20000 * slowness();
  naa_worker *worker = NULL;
  seat_open(&seat);
  OK(naa_worker_open(seat.source, &own, &worker));
  CHECK(pthread_join(seat.accepting, NULL) == 0);
  OK(naa_worker_close(worker));
  seat_close(&seat);
}

static void events(void) {
  naa_worker *worker = subscribed(&seat);
  CHECK(strstr(naa_worker_describe(worker), seat.source) != NULL);
  for (unsigned number = 0; number < 200; number++) {
    seat_put(&seat, number, number % (SLOT_BYTES + 1));
    const naa_event event = next_is(worker, number, number % (SLOT_BYTES + 1));
    CHECK(seat_held(&seat) == 1 && event.sequence == number + 1);
    OK(naa_event_release(event.token));
    CHECK(seat_held(&seat) == 0);
  }
  naa_worker_stats stats;
  OK(naa_worker_get_stats(worker, &stats));
  CHECK(stats.events == 200 && stats.held == 0 && stats.reconnects == 0);
  OK(naa_worker_close(worker));
  seat_close(&seat);
}

static void any_order(void) {
  naa_worker *worker = subscribed(&seat);
  naa_event all[SLOTS];
  for (unsigned number = 0; number < SLOTS; number++) {
    seat_put(&seat, number, SLOT_BYTES);
    all[number] = next_is(worker, number, SLOT_BYTES);
  }
  for (unsigned at = 0; at < SLOTS; at++) {
    const naa_event event = all[at * 5 % SLOTS];
    all_are(event.data, SLOT_BYTES, (unsigned)event.event);
    OK(naa_event_release(event.token));
    CHECK(seat_held(&seat) == (int)(SLOTS - 1 - at));
  }
  OK(naa_worker_close(worker));
  seat_close(&seat);
}

static void copies(void) {
  naa_worker *worker = subscribed(&seat);
  unsigned char copy[SLOT_BYTES];
  seat_put(&seat, 3, SLOT_BYTES);
  const naa_event event = next_is(worker, 3, SLOT_BYTES);
  memset(copy, 0xee, sizeof copy);
  OK(naa_event_copy(event.token, 0, copy, event.length));
  all_are(copy, SLOT_BYTES, 3);
  memset(copy, 0xee, sizeof copy);
  OK(naa_event_copy(event.token, event.length - 1, copy, 1));
  all_are(copy, 1, 3);
  CHECK(copy[1] == 0xee);
  OK(naa_event_copy(event.token, event.length, NULL, 0));
  OK(naa_event_release(event.token));
  OK(naa_worker_close(worker));
  seat_close(&seat);
}

/* Every third event says that another worker had it before. */
static void again(void) {
  naa_worker_options own = worker_options();
  own.again = 1;
  naa_worker *worker = subscribed_as(&seat, &own);
  for (unsigned number = 0; number < 20; number++) {
    bool is_again = number % 3 != 1;
    seat_put_as(&seat, number, 9, number % 3 == 1);
    const naa_event event = next_is(worker, number, 9);
    OK(naa_event_delivered_again(event.token, &is_again));
    CHECK(is_again == (number % 3 == 1));
    OK(naa_event_release(event.token));
  }
  OK(naa_worker_close(worker));
  seat_close(&seat);
}

static void *put_soon(void *unused) {
  (void)unused;
  pause_ms(30);
  seat_put(&seat, 9, 9);
  return NULL;
}

static void by_descriptor(void) {
  naa_worker *worker = subscribed(&seat);
  int32_t fd = -1;
  naa_event event;
  OK(naa_worker_fd(worker, &fd));
  for (int round = 0; round < 3; round++) {
    pthread_t thread;
    FAILS(NAA_ERROR_TIMEOUT, "no event", naa_worker_next(worker, 0, &event));
    CHECK(pthread_create(&thread, NULL, put_soon, NULL) == 0);
    struct pollfd entry = {fd, POLLIN, 0};
    do {
      CHECK(poll(&entry, 1, 10000 * slowness()) == 1);
    } while (naa_worker_next(worker, 0, &event) != NAA_OK);
    CHECK(event.event == 9);
    OK(naa_event_release(event.token));
    CHECK(pthread_join(thread, NULL) == 0);
  }
  OK(naa_worker_close(worker));
  seat_close(&seat);
}

static void outliving(void) {
  naa_worker *worker = subscribed(&seat);
  seat_put(&seat, 4, 40);
  seat_put(&seat, 5, 50);
  const naa_event event = next_is(worker, 4, 40);
  seat_leave(&seat);
  const naa_event last = next_is(worker, 5, 50);
  naa_event none;
  FAILS(NAA_ERROR_GONE, "closed its socket", naa_worker_next(worker, 10000 * slowness(), &none));
  OK(naa_worker_close(worker));
  all_are(event.data, 40, 4);
  all_are(last.data, 50, 5);
  OK(naa_event_release(last.token));
  OK(naa_event_release(event.token));
  seat_close(&seat);
}

static const struct row rows[] = {
    {"naa_worker_options_init", "use, with options of all kinds", options_of_all_kinds, 20, false},
    {"naa_worker_open", "use, with options of all kinds", options_of_all_kinds, 20, false},
    {"naa_worker_next", "use, 200 events", events, 20, false},
    {"naa_worker_describe", "use", events, 20, false},
    {"naa_worker_get_stats", "use", events, 20, false},
    {"naa_event_copy", "use, all of an event and a part", copies, 20, false},
    {"naa_event_delivered_again", "use", again, 20, false},
    {"naa_event_release", "use, in any order", any_order, 20, false},
    {"naa_event_release", "use, events outlive worker and bridge", outliving, 20, false},
    {"naa_worker_fd", "use, in an event loop", by_descriptor, 20, false},
    {"naa_worker_close", "use, events outlive it", outliving, 20, false},
};

MAIN(rows)
