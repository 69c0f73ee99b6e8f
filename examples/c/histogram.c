/*
 * Samples of streamed events, as they come: each event is little-endian uint16_t samples, as of a detector's digitiser.
 * Mean, extremes and a histogram of each data id, once a second and at the end.
 *
 * Each event is copied piece by piece, and the samples of a piece are counted before the next one is copied. The bridge could
 * change the event in the ring while it is counted; it cannot change the copy. A program for which the copy is too slow,
 * and which trusts its bridge, reads event.data instead.
 *
 *     make histogram
 *     ./histogram 10.9.0.1               a bridge on another host
 *     ./histogram unix:/run/naa.sock     one on this host
 *     ./histogram 10.9.0.1 1000          ends after 1000 events
 */
#include <inttypes.h>
#include <naa_events.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BINS = 16, DATA_IDS = 65536, WIDTH = 40, PIECE = 16384 };

/* Of one data id. */
struct tally {
    uint64_t events, samples, sum, bins[BINS];
    unsigned least, most;
};

static void add_samples(struct tally *tally, const unsigned char *bytes, uint64_t length) {
    for (uint64_t at = 0; at + 1 < length; at += 2) {
        const unsigned sample = bytes[at] | (unsigned)bytes[at + 1] << 8;
        tally->samples++;
        tally->sum += sample;
        tally->bins[sample * BINS / 65536]++;
        tally->least = sample < tally->least ? sample : tally->least;
        tally->most = sample > tally->most ? sample : tally->most;
    }
}

static naa_result add(struct tally *tally, const naa_event *event) {
    unsigned char piece[PIECE];
    if (tally->events++ == 0) {
        tally->least = UINT16_MAX;
    }
    for (uint64_t at = 0; at < event->length; at += PIECE) {
        const uint64_t left = event->length - at, length = left < PIECE ? left : PIECE;
        const naa_result result = naa_event_copy(event->token, at, piece, length);
        if (result != NAA_OK) {
            return result;
        }
        add_samples(tally, piece, length);
    }
    return NAA_OK;
}

static void report(const struct tally *tally, unsigned data_id) {
    uint64_t highest = 1;
    printf("data id %u: %" PRIu64 " events, %" PRIu64 " samples", data_id, tally->events, tally->samples);
    if (tally->samples == 0) {
        puts("");
        return;
    }
    printf(", mean %.2f, %u to %u\n", (double)tally->sum / (double)tally->samples, tally->least, tally->most);
    for (unsigned bin = 0; bin < BINS; bin++) {
        highest = tally->bins[bin] > highest ? tally->bins[bin] : highest;
    }
    for (unsigned bin = 0; bin < BINS; bin++) {
        printf("  %5u %12" PRIu64 " ", bin * 65536 / BINS, tally->bins[bin]);
        for (uint64_t length = tally->bins[bin] * WIDTH / highest; length > 0; length--) {
            putchar('#');
        }
        putchar('\n');
    }
}

static void report_all(const struct tally *all, naa_worker *worker) {
    naa_worker_stats stats;
    if (naa_worker_get_stats(worker, &stats) == NAA_OK) {
        printf("%" PRIu64 " events, %" PRIu64 " bytes, %" PRIu64 " reconnects\n", stats.events, stats.bytes, stats.reconnects);
    }
    for (unsigned data_id = 0; data_id < DATA_IDS; data_id++) {
        if (all[data_id].events > 0) {
            report(&all[data_id], data_id);
        }
    }
    fflush(stdout);
}

int main(int count, char **arguments) {
    if (count < 2 || count > 3) {
        fprintf(stderr, "usage: %s SOURCE [EVENTS]   (a bridge: ADDRESS[:PORT] or unix:PATH)\n", arguments[0]);
        return EXIT_FAILURE;
    }
    const uint64_t most = count == 3 ? strtoull(arguments[2], NULL, 10) : UINT64_MAX;
    struct tally *all = calloc(DATA_IDS, sizeof *all);
    if (all == NULL) {
        fputs("no memory for tallies\n", stderr);
        return EXIT_FAILURE;
    }
    naa_worker *worker;
    naa_result result = naa_worker_open(arguments[1], NULL, &worker);
    if (result == NAA_OK) {
        fprintf(stderr, "%s\n", naa_worker_describe(worker));
    }
    time_t reported = time(NULL);
    for (uint64_t events = 0; result == NAA_OK && events < most;) {
        naa_event event;
        result = naa_worker_next(worker, 1000, &event);
        if (result == NAA_OK) {
            result = add(&all[event.data_id], &event);
            if (result == NAA_OK) {
                result = naa_event_release(event.token);
            }
            events++;
        } else if (result == NAA_ERROR_TIMEOUT) {
            result = NAA_OK;
        }
        if (time(NULL) != reported) {
            report_all(all, worker);
            reported = time(NULL);
        }
    }
    if (result != NAA_OK) {
        fprintf(stderr, "%s\n", naa_last_error());
    } else {
        report_all(all, worker);
    }
    naa_worker_close(worker);
    free(all);
    return result == NAA_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
