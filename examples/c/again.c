/*
 * Events that come at least once: what a worker had when it was killed comes to the next one.
 *
 * Each worker sets naa_worker_options.again, also the one that may be killed. An event that comes again may have been used before,
 * so this program writes each event to a file with the event's name: writing it twice leaves what writing it once does. An event is
 * released when its file is complete, so an event that is lost with this program was not released, and comes again.
 *
 *     make again
 *     ./again unix:/run/naa.sock folder 1000      ends after 1000 events
 *     ./again unix:/run/naa.sock folder 1000 die  takes three events and ends at once, as if it was killed: for trying it
 */
#include <inttypes.h>
#include <naa_events.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 16384, DIES_WITH = 3, PATH = 4096 };

/* Writes an event to FOLDER/DATA_ID-EVENT, by another name first: a file with the event's name is complete. */
static int write_event(const char *folder, const naa_event *event) {
    unsigned char piece[PIECE];
    char part[PATH], whole[PATH];
    snprintf(part, sizeof part, "%s/.part-%" PRIu16 "-%" PRIu64, folder, event->data_id, event->event);
    const int length = snprintf(whole, sizeof whole, "%s/%" PRIu16 "-%" PRIu64, folder, event->data_id, event->event);
    if (length + 6 >= PATH) {
        fprintf(stderr, "%s: the path is too long\n", folder);
        return 0;
    }
    FILE *file = fopen(part, "wb");
    if (file == NULL) {
        perror(part);
        return 0;
    }
    int good = 1;
    for (uint64_t at = 0; good && at < event->length; at += PIECE) {
        const uint64_t left = event->length - at, bytes = left < PIECE ? left : PIECE;
        good = naa_event_copy(event->token, at, piece, bytes) == NAA_OK && fwrite(piece, 1, bytes, file) == bytes;
    }
    good = fclose(file) == 0 && good && rename(part, whole) == 0;
    if (!good) {
        fprintf(stderr, "%s: the event cannot be written\n", whole);
    }
    return good;
}

int main(int count, char **arguments) {
    if (count < 4 || count > 5) {
        fprintf(stderr, "usage: %s SOURCE FOLDER EVENTS [die]   (a bridge: ADDRESS[:PORT] or unix:PATH)\n", arguments[0]);
        return EXIT_FAILURE;
    }
    const uint64_t most = strtoull(arguments[3], NULL, 10);
    const int dies = count == 5 && strcmp(arguments[4], "die") == 0;
    naa_worker_options options;
    naa_worker *worker = NULL;
    naa_result result = naa_worker_options_init(&options, sizeof options);
    options.again = 1;
    if (result == NAA_OK) {
        result = naa_worker_open(arguments[1], &options, &worker);
    }
    for (uint64_t events = 0; result == NAA_OK && events < most; events++) {
        naa_event event;
        result = naa_worker_next(worker, -1, &event);
        if (result != NAA_OK) {
            break;
        }
        if (dies) {
            if (events + 1 == DIES_WITH) {
                _Exit(EXIT_FAILURE);
            }
            continue;
        }
        bool again;
        result = naa_event_delivered_again(event.token, &again);
        if (result != NAA_OK) {
            break;
        }
        if (!write_event(arguments[2], &event)) {
            return EXIT_FAILURE;
        }
        printf("%" PRIu16 "-%" PRIu64 "%s\n", event.data_id, event.event, again ? " again" : "");
        result = naa_event_release(event.token);
    }
    if (result != NAA_OK) {
        fprintf(stderr, "%s\n", naa_last_error());
    }
    naa_worker_close(worker);
    return result == NAA_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
