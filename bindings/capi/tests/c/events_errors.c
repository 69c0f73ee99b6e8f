/* What naa_events.h refuses. Arguments: a bridge's source, and an address where nobody is. */
#include "native_check.h"

#include <naa_events.h>
#include <pthread.h>

static const char *source;

static naa_worker_options fresh(void) {
    naa_worker_options options;
    OK(naa_worker_options_init(&options, sizeof options));
    options.slots = 8;
    options.slot_bytes = 64;
    options.reconnect_ms = -1;
    return options;
}

static void options_are_looked_at(void) {
    naa_worker *worker = (naa_worker *)&source;
    REFUSED(NAA_ERROR_ARGUMENT, "NULL", naa_worker_options_init(NULL, sizeof(naa_worker_options)));
    naa_worker_options options;
    REFUSED(NAA_ERROR_ARGUMENT, "sizeof", naa_worker_options_init(&options, 4));
    options = fresh();
    options.struct_size = 8;
    REFUSED(NAA_ERROR_ARGUMENT, "struct_size", naa_worker_open(source, &options, &worker));
    CHECK(worker == NULL);
    options = fresh();
    options.slots = 65537;
    REFUSED(NAA_ERROR_ARGUMENT, "65537 slots", naa_worker_open(source, &options, &worker));
    options = fresh();
    options.slot_bytes = 65;
    REFUSED(NAA_ERROR_ARGUMENT, "multiples of 64", naa_worker_open(source, &options, &worker));
    options = fresh();
    options.first_data_id = 65535;
    options.data_ids = 2;
    REFUSED(NAA_ERROR_ARGUMENT, "data_ids", naa_worker_open(source, &options, &worker));
    options = fresh();
    options.member = 3;
    REFUSED(NAA_ERROR_ARGUMENT, "has_member", naa_worker_open(source, &options, &worker));
    options.has_member = 1;
    options.member = 65536;
    REFUSED(NAA_ERROR_ARGUMENT, "member", naa_worker_open(source, &options, &worker));
    options = fresh();
    options.wait = 9;
    REFUSED(NAA_ERROR_ARGUMENT, "wait", naa_worker_open(source, &options, &worker));
    options = fresh();
    options.reconnect_ms = -2;
    REFUSED(NAA_ERROR_ARGUMENT, "reconnect_ms", naa_worker_open(source, &options, &worker));
    options = fresh();
    options.name = "more than thirty-two bytes of a name";
    REFUSED(NAA_ERROR_ARGUMENT, "name", naa_worker_open(source, &options, &worker));
}

static void sources_are_looked_at(const char *nobody) {
    naa_worker *worker = NULL;
    naa_worker_options options = fresh();
    options.setup_timeout_ms = 300;
    REFUSED(NAA_ERROR_ARGUMENT, "NULL", naa_worker_open(NULL, &options, &worker));
    REFUSED(NAA_ERROR_ARGUMENT, "NULL", naa_worker_open(source, &options, NULL));
    REFUSED(NAA_ERROR_ARGUMENT, "", naa_worker_open("", &options, &worker));
    REFUSED(NAA_ERROR_ARGUMENT, "unix:PATH", naa_worker_open("unix:", &options, &worker));
    REFUSED(NAA_ERROR_UNREACHABLE, "naa bridge", naa_worker_open("unix:/nowhere", &options, &worker));
    REFUSED(NAA_ERROR_UNREACHABLE, "nothing answers", naa_worker_open(nobody, &options, &worker));
    CHECK(worker == NULL);
}

static void *wait_for_event(void *worker) {
    naa_event event;
    int32_t result;
    do {
        /* The other thread may be the one that uses it. */
        result = naa_worker_next((naa_worker *)worker, -1, &event);
    } while (result == NAA_ERROR_STATE);
    IS(NAA_ERROR_GONE, result);
    IS(NAA_ERROR_OVER, naa_worker_next((naa_worker *)worker, -1, &event));
    return NULL;
}

/* The bridge gives one event, and leaves when the event was given back. */
static void handles_are_looked_at(void) {
    naa_event event;
    naa_worker_stats stats;
    int32_t fd;
    naa_worker *none = (naa_worker *)&event;
    REFUSED(NAA_ERROR_ARGUMENT, "a worker is needed", naa_worker_next(NULL, 0, &event));
    REFUSED(NAA_ERROR_ARGUMENT, "a worker is needed", naa_worker_next(none, 0, &event));
    REFUSED(NAA_ERROR_ARGUMENT, "a worker is needed", naa_worker_fd(none, &fd));
    REFUSED(NAA_ERROR_ARGUMENT, "a worker is needed", naa_worker_get_stats(none, &stats));
    CHECK(naa_worker_describe(none) == NULL);
    IS(NAA_ERROR_ARGUMENT, naa_worker_close(none));
    OK(naa_worker_close(NULL));
    REFUSED(NAA_ERROR_ARGUMENT, "an event is needed", naa_event_release(0));
    REFUSED(NAA_ERROR_ARGUMENT, "an event is needed", naa_event_release(UINT64_MAX));

    unsigned char copy[64];
    REFUSED(NAA_ERROR_ARGUMENT, "an event is needed", naa_event_copy(0, 0, copy, 1));

    naa_worker_options options = fresh();
    naa_worker *worker = NULL;
    OK(naa_worker_open(source, &options, &worker));
    OK(naa_worker_next(worker, 10000, &event));
    CHECK(event.length == sizeof copy);
    REFUSED(NAA_ERROR_ARGUMENT, "65 bytes at 0", naa_event_copy(event.token, 0, copy, 65));
    REFUSED(NAA_ERROR_ARGUMENT, "which has 64", naa_event_copy(event.token, UINT64_MAX, copy, 1));
    REFUSED(NAA_ERROR_ARGUMENT, "to is NULL", naa_event_copy(event.token, 0, NULL, 1));
    OK(naa_event_copy(event.token, 64, NULL, 0));
    REFUSED(NAA_ERROR_ARGUMENT, "NULL", naa_worker_next(worker, 0, NULL));
    REFUSED(NAA_ERROR_ARGUMENT, "NULL", naa_worker_fd(worker, NULL));
    REFUSED(NAA_ERROR_ARGUMENT, "NULL", naa_worker_get_stats(worker, NULL));
    naa_event more;
    REFUSED(NAA_ERROR_TIMEOUT, "within 20 ms", naa_worker_next(worker, 20, &more));
    CHECK(more.data == NULL);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_for_event, worker) == 0);
    const double until = seconds() + 10;
    while (naa_worker_get_stats(worker, &stats) != NAA_ERROR_STATE) {
        CHECK(seconds() < until);
    }
    REFUSED(NAA_ERROR_STATE, "another thread", naa_worker_close(worker));
    OK(naa_event_release(event.token));
    REFUSED(NAA_ERROR_ARGUMENT, "freed", naa_event_release(event.token));
    REFUSED(NAA_ERROR_ARGUMENT, "freed", naa_event_copy(event.token, 0, copy, 1));
    CHECK(pthread_join(thread, NULL) == 0);
    OK(naa_worker_close(worker));
    REFUSED(NAA_ERROR_ARGUMENT, "freed", naa_worker_close(worker));
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    source = arguments[1];
    options_are_looked_at();
    sources_are_looked_at(arguments[2]);
    handles_are_looked_at();
    puts("ok");
    return 0;
}
