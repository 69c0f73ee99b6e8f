/* Connect, call, close: again and again, without growth. Arguments: the accelerator's address, how often. */
#include "native_check.h"
#include <dirent.h>
#include <unistd.h>

static unsigned char bytes[20000];

/* Pages in memory. */
static long resident(void) {
    long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%ld %ld", &size, &resident) == 2 && fclose(file) == 0);
    return resident;
}

static int entries(const char *folder) {
    int count = 0;
    DIR *dir = opendir(folder);
    CHECK(dir != NULL);
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count;
}

static void cycle(const char *address, int number) {
    naa_buffer *buffer = NULL;
    OK(naa_buffer_alloc(8192, &buffer));
    const naa_region regions[] = {
        region(bytes, sizeof bytes, NAA_INOUT), region(naa_buffer_data(buffer), 8192, NAA_INPUT), region(NULL, 100, NAA_INTERNAL),
    };
    naa_session *session = NULL;
    int32_t fd = -1;
    OK(naa_session_connect(address, regions, 3, NULL, &session));
    if (number % 3 == 0) {
        OK(naa_session_fd(session, &fd));
    }
    OK(naa_call(session, INCREMENT, 0, 20000, NULL));
    if (number % 5 == 0) {
        /* Closed with a call under way. */
        OK(naa_call_start(session, INCREMENT, 0));
    }
    OK(naa_session_close(session));
    OK(naa_buffer_free(buffer));
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    const int cycles = atoi(arguments[2]);
    /* A session that stays keeps the device open. */
    const naa_region regions[] = {region(bytes, 1, NAA_INPUT)};
    naa_session *kept = NULL;
    OK(naa_session_connect(arguments[1], regions, 1, NULL, &kept));
    for (int i = 0; i < 200; i++) {
        cycle(arguments[1], i);
    }
    const long pages = resident();
    const int fds = entries("/proc/self/fd"), threads = entries("/proc/self/task");
    for (int i = 0; i < cycles; i++) {
        cycle(arguments[1], i);
    }
    printf("%ld pages before, %ld after %d cycles\n", pages, resident(), cycles);
    CHECK(resident() - pages < 256);
    CHECK(entries("/proc/self/fd") == fds && entries("/proc/self/task") == threads);
    OK(naa_session_close(kept));
    puts("ok");
    return 0;
}
