/*
 * naa_events.h: takes events from an EJFAT bridge.
 *
 * A bridge reassembles events of detectors and puts each into a ring in the worker's memory, by RDMA or, on one host, in
 * memory that both map. The worker copies them from there or, if it trusts the bridge, reads them there, and gives them
 * back in any order.
 *
 *     #include <naa_events.h>
 *     #include <stdio.h>
 *
 *     int main(void) {
 *         naa_worker *worker;
 *         naa_event event;
 *         naa_result result = naa_worker_open("10.9.0.1", NULL, &worker);
 *         while (result == NAA_OK && (result = naa_worker_next(worker, -1, &event)) == NAA_OK) {
 *             printf("event %llu: %llu bytes\n", (unsigned long long)event.event, (unsigned long long)event.length);
 *             result = naa_event_release(event.token);
 *         }
 *         fprintf(stderr, "%s\n", naa_last_error());
 *         return 1;
 *     }
 *
 * Build: cc program.c $(pkg-config --cflags --libs naa)
 *
 * Errors are those of naa.h: NAA_OK or a negative naa_result, and naa_last_error() has the text.
 *
 * Threads. Each worker one thread at a time; one that another thread is using is refused with NAA_ERROR_STATE. Events may
 * be read and released on any thread, also while another one waits for more.
 *
 * Trust. The bridge can write the ring as long as it has it. One that keeps to the protocol does not write an event before
 * it was released; one that breaks it can change an event while it is read. naa_event_copy() copies an event, or a part of
 * it, to memory that only the program writes: take that unless you trust the bridge. To read naa_event.data in place is
 * your promise that neither the bridge, nor who can act in its place, writes it meanwhile.
 *
 * `cargo xtask header` makes this file from bindings/capi/src/events. Change it there.
 */


#ifndef NAA_EVENTS_H
#define NAA_EVENTS_H

#include <naa.h>

/**
 * A subscription to the events of a bridge.
 */
typedef struct naa_worker naa_worker;

/**
 * Options of naa_worker_open(). A member that is 0 stands for its default, so `{ .struct_size = sizeof options }` will do,
 * and so will naa_worker_options_init(). Later versions may append members.
 */
typedef struct naa_worker_options {
    /**
     * sizeof(naa_worker_options).
     */
    uint32_t struct_size;
    /**
     * Slots of the ring, 1 to 65536. Default 64. An event takes as many as it needs, side by side; one that is larger than
     * the ring never comes.
     */
    uint32_t slots;
    /**
     * Bytes of a slot, a multiple of 64. Default 1048576. The ring is shorter than 4 GiB.
     */
    uint32_t slot_bytes;
    /**
     * If events are routed by data id: the first data id of which this worker gets events,
     */
    uint32_t first_data_id;
    /**
     * and the number of data ids from that one on. 0: all further ones.
     */
    uint32_t data_ids;
    /**
     * If events are routed by load-balancer tables: whether this worker is a member of them (not 0),
     */
    uint32_t has_member;
    /**
     * and which member it is, 0 to 65535.
     */
    uint32_t member;
    /**
     * The bridge must have answered within this many milliseconds. Default: NAA_TIMEOUT, a number of seconds, and 10000 if
     * that is not set.
     */
    int32_t setup_timeout_ms;
    /**
     * While naa_worker_next() waits, a bridge on another host is asked for a sign of life every so many milliseconds.
     * Default 1000; -1 for never: then its death may go unnoticed for ever.
     */
    int32_t probe_interval_ms;
    /**
     * One that acknowledges nothing for about this many milliseconds is taken for dead. At least as long, and at
     * most some three times. Default 2100.
     */
    int32_t silence_ms;
    /**
     * A bridge that ended is looked for so many milliseconds, then it is NAA_ERROR_GONE. Default 30000; -1 for not at all.
     */
    int32_t reconnect_ms;
    /**
     * NAA_WAIT_... of naa.h: how waiting threads wait.
     */
    int32_t wait;
    /**
     * NAA_PROVIDER_... of naa.h.
     */
    int32_t provider;
    /**
     * 1: the bridge may also give this worker events that another worker had when it ended, and naa_event_delivered_again()
     * says which these are. Set it in every worker, also in those that may end or be killed: the bridge keeps what a worker had only
     * if that worker set it, or if another worker that set it is subscribed when the first one ends. An event that is kept, and
     * whose bytes the bridge has (not in cut-through), is delivered to the next worker that set this and has room, within the
     * bridge's --hold, and again at most twice. A bridge that does not know this option refuses. 0, the default: this worker gets
     * each event at most once.
     */
    uint32_t again;
    /**
     * The local address to use, "10.9.0.2" or "fd00::2". NULL: NAA_LOCAL_IP, and if that is not set where the route to
     * the bridge begins.
     */
    const char *local_address;
    /**
     * For people, up to 32 bytes of printable ASCII: the bridge shows it. NULL for none.
     */
    const char *name;
} naa_worker_options;

/**
 * An event. Its bytes are where the bridge put them; they are not to be written, and may be read until the event is
 * released.
 *
 * The bridge can still write them. One that keeps to the protocol does not before the event is released; one that does not
 * can change a byte between two reads, and a compiler may read twice where a program does once. naa_event_copy() has
 * bytes that stay as they are. Read `data` in place where you trust the bridge, and whoever else can write the ring.
 */
typedef struct naa_event {
    /**
     * In the worker's ring, at the beginning of a slot. The bridge can write there: see above.
     */
    const void *data;
    /**
     * Bytes of `data`.
     */
    uint64_t length;
    /**
     * The event's number, of those who sent it.
     */
    uint64_t event;
    /**
     * The tick of its segments, if they came with an LB header, as directly from a sender. A load balancer takes the header away.
     */
    uint64_t tick;
    /**
     * When its first segment came to the bridge, in nanoseconds since 1970 by the bridge's clock.
     */
    uint64_t first_segment_ns;
    /**
     * Nanoseconds from then until the last one came.
     */
    uint64_t assembly_ns;
    /**
     * What naa_event_release() needs.
     */
    uint64_t token;
    /**
     * Counts the events of a subscription from 1 on; a bridge that came back begins again.
     */
    uint32_t sequence;
    /**
     * The data id of the source that sent the event.
     */
    uint16_t data_id;
    /**
     * Whether `tick` is one.
     */
    bool has_tick;
} naa_event;

/**
 * Counters of a worker since it was opened.
 */
typedef struct naa_worker_stats {
    /**
     * Events that came.
     */
    uint64_t events;
    /**
     * Their bytes.
     */
    uint64_t bytes;
    /**
     * How often the bridge was found again.
     */
    uint64_t reconnects;
    /**
     * Events that were not released.
     */
    uint64_t held;
} naa_worker_stats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Sets all of `options`, of `size` bytes (sizeof(naa_worker_options)), to the defaults.
 *
 * NAA_ERROR_ARGUMENT if `options` is NULL or `size` is not that of the struct.
 */
naa_result naa_worker_options_init(struct naa_worker_options *options, size_t size);

/**
 * Copies `length` bytes of an event, from `offset` on, to `to`. The event is named by its `token`. What the bridge writes
 * afterwards does not change the copy: check the copy, and use the same one.
 *
 * From any thread, also after the worker was closed. Threads that copy from one event do so one after the other.
 *
 * NAA_ERROR_ARGUMENT if `token` is none, or the event was released; if the event ends before `offset` + `length`; if `to` is
 * NULL and `length` is not 0.
 */
naa_result naa_event_copy(uint64_t token,
                          uint64_t offset,
                          void *to,
                          uint64_t length);

/**
 * Sets `again` to whether another worker had the event with this `token` when that worker ended, and so may have used all of
 * it or a part. This is always false unless naa_worker_options.again asks for events of workers that ended.
 *
 * NAA_ERROR_ARGUMENT if `token` names no event, or one that was released; if `again` is NULL.
 */
naa_result naa_event_delivered_again(uint64_t token,
                                     bool *again);

/**
 * Gives an event back, by its `token`: its bytes are not to be read any more, and the bridge puts others there. In any
 * order, from any thread, also after the worker was closed.
 *
 * NAA_ERROR_ARGUMENT if `token` is none, or the event was released before.
 */
naa_result naa_event_release(uint64_t token);

/**
 * Subscribes at a bridge. Returns when the bridge has answered, or could not.
 *
 * `source`: "10.9.0.1", "10.9.0.1:12345", "[fd00::1]:12345" or a host's name: by RDMA. "unix:/run/naa-bridge.sock": the
 * socket of a bridge on this host, which puts events into memory that both map. `options`: NULL for the defaults.
 * `worker`: where the handle goes; NULL goes there after an error.
 *
 * NAA_ERROR_UNREACHABLE, NAA_ERROR_TIMEOUT; NAA_ERROR_REFUSED, and the text has the bridge's reason; NAA_ERROR_FUNCTION if an
 * accelerator is there that is no bridge; NAA_ERROR_PEER; NAA_ERROR_ARGUMENT; NAA_ERROR_ENVIRONMENT, NAA_ERROR_DEVICE,
 * NAA_ERROR_MEMORY.
 */
naa_result naa_worker_open(const char *source,
                           const struct naa_worker_options *options,
                           struct naa_worker **worker);

/**
 * Waits at most `timeout_ms` milliseconds for the next event; 0 only looks, a negative number is no limit. Release the
 * event by naa_event_release(): who keeps all of them gets no more.
 *
 * A bridge that ended is looked for meanwhile, see naa_worker_options.reconnect_ms. Events of the old one stay readable.
 *
 * NAA_ERROR_TIMEOUT if none came, with `data` NULL in `event`. NAA_ERROR_GONE if the bridge did not come back,
 * NAA_ERROR_REFUSED if it came back and refused, NAA_ERROR_PEER if it broke the protocol, NAA_ERROR_DEVICE: then the
 * subscription is over, and after that it is NAA_ERROR_OVER. NAA_ERROR_ARGUMENT; NAA_ERROR_STATE if another thread is using
 * the worker.
 */
naa_result naa_worker_next(struct naa_worker *worker,
                           int32_t timeout_ms,
                           struct naa_event *event);

/**
 * Sets `fd` to a descriptor for poll(), epoll or an event loop. After naa_worker_next() with 0 ms gave nothing, it becomes
 * readable when it is time to call that again: call it until it gives nothing. Read nothing from it, and do not close
 * it: it is the worker's, whatever becomes of the bridge, and goes when the worker is closed.
 *
 * NAA_ERROR_ARGUMENT, NAA_ERROR_STATE if another thread is using the worker, NAA_ERROR_DEVICE.
 */
naa_result naa_worker_fd(struct naa_worker *worker,
                         int32_t *fd);

/**
 * Sets `stats` to what the worker did so far.
 *
 * NAA_ERROR_ARGUMENT, NAA_ERROR_STATE if another thread is using the worker.
 */
naa_result naa_worker_get_stats(const struct naa_worker *worker, struct naa_worker_stats *stats);

/**
 * Which way events come, and why, for people. Valid until the next such call for this worker, or until it is closed;
 * NULL if `worker` is none or another thread is using it.
 */
const char *naa_worker_describe(struct naa_worker *worker);

/**
 * Ends the subscription and frees the worker; NULL is allowed. Events that were not released stay readable until they
 * are.
 *
 * NAA_ERROR_ARGUMENT if `worker` is none, or was closed; NAA_ERROR_STATE if another thread is using it.
 */
naa_result naa_worker_close(struct naa_worker *worker);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NAA_EVENTS_H */
