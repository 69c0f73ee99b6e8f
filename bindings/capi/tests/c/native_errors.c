/* Wrong uses of naa.h: each is refused with the right result and a text, and harms nothing. Argument: the accelerator's
 * address. */
#include "native_check.h"
#include <pthread.h>
#include <sys/mman.h>

static const char *address;
static unsigned char bytes[64];

static naa_session *connected(void) {
    const naa_region regions[] = {region(bytes, sizeof bytes, NAA_INOUT), region(NULL, 10, NAA_INTERNAL)};
    naa_session *session = NULL;
    OK(naa_session_connect(address, regions, 2, NULL, &session));
    return session;
}

/* Every function that takes a session. */
static void no_session(naa_session *session, const char *words) {
    naa_outcome outcome;
    bool done = false;
    int32_t number = 0;
    int64_t index = 7;
    REFUSED(NAA_ERROR_ARGUMENT, words, naa_call(session, INCREMENT, 0, 1000, &outcome));
    REFUSED(NAA_ERROR_ARGUMENT, words, naa_call_start(session, INCREMENT, 0));
    REFUSED(NAA_ERROR_ARGUMENT, words, naa_call_test(session, &done, &outcome));
    REFUSED(NAA_ERROR_ARGUMENT, words, naa_call_wait(session, 1000, &outcome));
    REFUSED(NAA_ERROR_ARGUMENT, words, naa_session_state(session, &number));
    REFUSED(NAA_ERROR_ARGUMENT, words, naa_session_fd(session, &number));
    REFUSED(NAA_ERROR_ARGUMENT, words, naa_session_set_range(session, 0, 0, 1));
    REFUSED(NAA_ERROR_ARGUMENT, words, naa_session_set_range_all(session, 0));
    CHECK(naa_session_describe(session) == NULL);
    if (session != NULL) {
        REFUSED(NAA_ERROR_ARGUMENT, words, naa_session_close(session));
        REFUSED(NAA_ERROR_ARGUMENT, "sessions[0]", naa_call_wait_any(&session, 1, 1000, &index, &outcome));
        CHECK(index == NAA_UNDEFINED);
        REFUSED(NAA_ERROR_ARGUMENT, "sessions[0]", naa_call_wait_all(&session, 1, 1000, &outcome));
    }
}

static void nonsense_handles(void) {
    OK(naa_session_close(NULL));
    no_session(NULL, "NULL");
    naa_session *session = connected(), *second = connected();
    OK(naa_session_close(session));
    no_session(session, "freed");
    naa_buffer *buffer = NULL;
    OK(naa_buffer_alloc(10, &buffer));
    int on_the_stack = 0;
    void *const nonsense[] = {buffer, &on_the_stack, bytes, (void *)1, (void *)-1, naa_buffer_data(buffer)};
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        no_session((naa_session *)nonsense[i], "none");
    }
    CHECK(naa_buffer_data((naa_buffer *)(void *)second) == NULL && naa_buffer_size(NULL) == 0);
    IS(NAA_ERROR_ARGUMENT, naa_buffer_free((naa_buffer *)(void *)second));
    OK(naa_buffer_free(buffer));
    REFUSED(NAA_ERROR_ARGUMENT, "freed", naa_buffer_free(buffer));
    OK(naa_call(second, INCREMENT, 0, 5000, NULL));
    OK(naa_session_close(second));
}

static void wrong_states(void) {
    naa_session *session = connected();
    naa_outcome outcome;
    bool done = true;
    REFUSED(NAA_ERROR_STATE, "no call", naa_call_wait(session, 1000, &outcome));
    REFUSED(NAA_ERROR_STATE, "no call", naa_call_test(session, &done, &outcome));
    OK(naa_call_start(session, SLEEP, 50));
    REFUSED(NAA_ERROR_STATE, "in use by a call", naa_call_start(session, INCREMENT, 0));
    REFUSED(NAA_ERROR_STATE, "in use by a call", naa_call(session, INCREMENT, 0, 1000, &outcome));
    OK(naa_call_wait(session, 5000, &outcome));
    CHECK(outcome.function == SLEEP);
    IS(NAA_ERROR_STATE, naa_call_wait(session, 5000, &outcome));
    OK(naa_session_close(session));
}

static void *waits(void *session) {
    OK(naa_call((naa_session *)session, SLEEP, 1000, 5000, NULL));
    return NULL;
}

static void another_thread_has_it(void) {
    naa_session *session = connected();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, waits, session) == 0);
    int32_t state = 0;
    const struct timespec until_it_waits = {0, 100000000};
    nanosleep(&until_it_waits, NULL);
    REFUSED(NAA_ERROR_STATE, "another thread", naa_session_state(session, &state));
    REFUSED(NAA_ERROR_STATE, "another thread", naa_call_wait(session, 0, NULL));
    REFUSED(NAA_ERROR_STATE, "another thread", naa_session_close(session));
    CHECK(naa_session_describe(session) == NULL);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(naa_session_close(session));
}

static void bad_numbers(void) {
    naa_session *session = connected();
    const int codes[] = {0, -1, 128, 256 + 1, 1 << 30};
    for (int i = 0; i < 5; i++) {
        REFUSED(NAA_ERROR_ARGUMENT, "1 to 127", naa_call_start(session, codes[i], 0));
    }
    REFUSED(NAA_ERROR_ARGUMENT, "24 bits", naa_call_start(session, INCREMENT, 1 << 24));
    REFUSED(NAA_ERROR_ARGUMENT, "the session has 2", naa_session_set_range(session, 2, 0, 1));
    REFUSED(NAA_ERROR_ARGUMENT, "internal", naa_session_set_range(session, 1, 0, 1));
    REFUSED(NAA_ERROR_ARGUMENT, "it has 64 bytes", naa_session_set_range(session, 0, 0, 65));
    REFUSED(NAA_ERROR_ARGUMENT, "it has 64 bytes", naa_session_set_range(session, 0, 65, 0));
    REFUSED(NAA_ERROR_ARGUMENT, "it has 64 bytes", naa_session_set_range(session, 0, UINT64_MAX, 2));
    REFUSED(NAA_ERROR_ARGUMENT, "counted from 0", naa_session_set_range_all(session, SIZE_MAX));
    REFUSED(NAA_ERROR_ARGUMENT, "NULL", naa_session_state(session, NULL));
    REFUSED(NAA_ERROR_ARGUMENT, "NULL", naa_session_fd(session, NULL));
    OK(naa_call_start(session, INCREMENT, 0));
    REFUSED(NAA_ERROR_ARGUMENT, "NULL", naa_call_test(session, NULL, NULL));
    OK(naa_call_wait(session, 5000, NULL));
    naa_session *twice[] = {session, session};
    int64_t index = 0;
    OK(naa_call_wait_any(twice, 2, 1000, &index, NULL));
    CHECK(index == NAA_UNDEFINED);
    OK(naa_call_start(session, INCREMENT, 0));
    REFUSED(NAA_ERROR_ARGUMENT, "sessions[1] is there twice", naa_call_wait_any(twice, 2, 1000, &index, NULL));
    REFUSED(NAA_ERROR_ARGUMENT, "sessions[1] is there twice", naa_call_wait_all(twice, 2, 1000, NULL));
    REFUSED(NAA_ERROR_ARGUMENT, "NULL", naa_call_wait_any(NULL, 2, 1000, &index, NULL));
    REFUSED(NAA_ERROR_ARGUMENT, "NULL", naa_call_wait_any(twice, 1, 1000, NULL, NULL));
    REFUSED(NAA_ERROR_ARGUMENT, "NULL", naa_call_wait_all(NULL, 1, 1000, NULL));
    IS(NAA_ERROR_ARGUMENT, naa_call_wait_any(twice, SIZE_MAX / 2, 1000, &index, NULL));
    OK(naa_call_wait(session, 5000, NULL));
    OK(naa_session_close(session));
}

static void refuse(const char *words, const naa_region *regions, size_t count) {
    naa_session *session = (naa_session *)1;
    REFUSED(NAA_ERROR_ARGUMENT, words, naa_session_connect(address, regions, count, NULL, &session));
    CHECK(session == NULL);
}

static void refuse_one(const char *words, void *addr, uint64_t size, uint32_t flags) {
    const naa_region regions[] = {region(bytes, 4, NAA_INPUT), region(addr, size, flags)};
    CHECK(strstr(words, "region 1") == words);
    refuse(words, regions, 2);
}

static void bad_regions(void) {
    refuse("regions is NULL", NULL, 1);
    refuse_one("region 1: addr is NULL", NULL, 4, NAA_INPUT);
    refuse_one("region 1: flags are 0", bytes, 4, 0);
    refuse_one("region 1: flags 0x10", bytes, 4, 16);
    refuse_one("region 1: flags 0x9", bytes, 4, NAA_INTERNAL | NAA_INPUT);
    refuse_one("region 1: addr is not NULL", bytes, 4, NAA_INTERNAL);
    refuse_one("region 1: the program has no memory", (void *)4096, 4, NAA_INPUT);
    refuse_one("region 1: the program has no memory", (void *)4096, 4, NAA_OUTPUT);
    refuse_one("region 1: ", (void *)-8, 4, NAA_INPUT);
    refuse_one("region 1: ", bytes, UINT64_MAX, NAA_INPUT);
    refuse_one("region 1: ", bytes, (uint64_t)1 << 46, NAA_INPUT);
    naa_region many[33];
    for (int i = 0; i < 33; i++) {
        many[i] = region(bytes, 1, NAA_INPUT);
    }
    refuse("31", many, 32);
    refuse("at least one", many, 0);
    /* A hole in the middle; a page that cannot be written; one that cannot be read. */
    unsigned char *pages = (unsigned char *)mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    CHECK(mprotect(pages + 4096, 4096, PROT_READ) == 0);
    refuse_one("region 1: the program may not write", pages, 5000, NAA_OUTPUT);
    CHECK(mprotect(pages + 4096, 4096, PROT_NONE) == 0);
    refuse_one("region 1: the program may not read", pages, 5000, NAA_INPUT);
    CHECK(munmap(pages + 4096, 4096) == 0);
    refuse_one("region 1: the program has no memory", pages, 3 * 4096, NAA_INPUT);
    CHECK(munmap(pages, 4096) == 0 && munmap(pages + 8192, 4096) == 0);
}

static void bad_buffers(void) {
    naa_buffer *buffer = NULL, *second = NULL;
    static unsigned char own[100];
    REFUSED(NAA_ERROR_ARGUMENT, "NULL", naa_buffer_alloc(10, NULL));
    REFUSED(NAA_ERROR_MEMORY, "ulimit", naa_buffer_alloc((uint64_t)1 << 60, &buffer));
    IS(NAA_ERROR_MEMORY, naa_buffer_alloc(UINT64_MAX, &buffer));
    REFUSED(NAA_ERROR_ARGUMENT, "NULL", naa_buffer_wrap(own, 100, NULL));
    REFUSED(NAA_ERROR_ARGUMENT, "NULL", naa_buffer_wrap(NULL, 100, &buffer));
    REFUSED(NAA_ERROR_ARGUMENT, "size is 0", naa_buffer_wrap(own, 0, &buffer));
    REFUSED(NAA_ERROR_ARGUMENT, "no memory", naa_buffer_wrap((void *)4096, 1, &buffer));
    OK(naa_buffer_wrap(own + 10, 50, &buffer));
    REFUSED(NAA_ERROR_ARGUMENT, "another buffer", naa_buffer_wrap(own, 100, &second));
    REFUSED(NAA_ERROR_ARGUMENT, "another buffer", naa_buffer_wrap(own, 11, &second));
    REFUSED(NAA_ERROR_ARGUMENT, "another buffer", naa_buffer_wrap(own + 59, 1, &second));
    OK(naa_buffer_wrap(own + 60, 40, &second));
    OK(naa_buffer_free(second));
    OK(naa_buffer_free(buffer));
}

static void bad_addresses(void) {
    const naa_region regions[] = {region(bytes, 4, NAA_INPUT)};
    naa_session *session = NULL;
    const char *const unreadable[] = {"", ":", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:99999", "[::1", "a b", "\xff"};
    for (size_t i = 0; i < sizeof unreadable / sizeof *unreadable; i++) {
        IS(NAA_ERROR_ARGUMENT, naa_session_connect(unreadable[i], regions, 1, NULL, &session));
    }
    REFUSED(NAA_ERROR_ARGUMENT, "address is NULL", naa_session_connect(NULL, regions, 1, NULL, &session));
    REFUSED(NAA_ERROR_ARGUMENT, "session is NULL", naa_session_connect(address, regions, 1, NULL, NULL));
    REFUSED(NAA_ERROR_UNREACHABLE, "look up", naa_session_connect("no.such.host.invalid", regions, 1, NULL, &session));
    naa_options options;
    OK(naa_options_init(&options, sizeof options));
    options.setup_timeout_ms = 200;
    const double start = seconds();
    IS(NAA_ERROR_UNREACHABLE, naa_session_connect("127.0.99.99", regions, 1, &options, &session));
    CHECK(seconds() - start < 2);
    char other_port[64];
    CHECK(snprintf(other_port, sizeof other_port, "%s:7", address) < 64);
    REFUSED(NAA_ERROR_REFUSED, "port", naa_session_connect(other_port, regions, 1, NULL, &session));
    CHECK(session == NULL);
}

static void bad_options(void) {
    const naa_region regions[] = {region(bytes, 4, NAA_INPUT)};
    naa_session *session = NULL;
    naa_options good, options;
    REFUSED(NAA_ERROR_ARGUMENT, "NULL", naa_options_init(NULL, sizeof good));
    REFUSED(NAA_ERROR_ARGUMENT, "sizeof", naa_options_init(&good, 4));
    OK(naa_options_init(&good, sizeof good));
#define REFUSED_OPTION(words, member, value)                                                                 \
    do {                                                                                                     \
        options = good;                                                                                      \
        options.member = value;                                                                              \
        REFUSED(NAA_ERROR_ARGUMENT, words, naa_session_connect(address, regions, 1, &options, &session));    \
    } while (0)
    REFUSED_OPTION("struct_size", struct_size, 0);
    REFUSED_OPTION("struct_size", struct_size, 1u << 31);
    REFUSED_OPTION("provider", provider, 3);
    REFUSED_OPTION("wait", wait, -1);
    REFUSED_OPTION("dialect", dialect, 2);
    REFUSED_OPTION("setup_timeout_ms", setup_timeout_ms, -1);
    REFUSED_OPTION("probe_interval_ms", probe_interval_ms, -2);
    REFUSED_OPTION("silence_ms", silence_ms, -1);
    REFUSED_OPTION("layout", layout, 5);
    REFUSED_OPTION("layout", layout, -1);
    REFUSED_OPTION("call_timeout_ms", call_timeout_ms, -2);
    REFUSED_OPTION("local_address", local_address, "host");
    REFUSED_OPTION("family", local_address, "::1");
    options = good;
    options.local_address = "192.0.2.77";
    IS(NAA_ERROR_DEVICE, naa_session_connect(address, regions, 1, &options, &session));
    struct {
        naa_options known;
        uint64_t unknown;
    } newer;
    OK(naa_options_init(&newer.known, sizeof newer));
    newer.unknown = 1;
    REFUSED(NAA_ERROR_ARGUMENT, "does not know", naa_session_connect(address, regions, 1, &newer.known, &session));
}

static void bad_arguments(void) {
    unsigned char block[NAA_BLOCK_BYTES];
    const int64_t values[] = {1, 1, 1, 1, 1, 1, 1};
    REFUSED(NAA_ERROR_ARGUMENT, "NULL", naa_arguments(NULL, DGEMM, values, 3));
    REFUSED(NAA_ERROR_ARGUMENT, "NULL", naa_arguments(block, DGEMM, NULL, 3));
    IS(NAA_ERROR_ARGUMENT, naa_arguments(block, DGEMM, values, 4));
    IS(NAA_ERROR_ARGUMENT, naa_arguments(block, DGEMM, values, 7));
    IS(NAA_ERROR_ARGUMENT, naa_arguments(block, INCREMENT, values, 1));
    IS(NAA_ERROR_ARGUMENT, naa_arguments(block, 0, values, 1));
}

static void without_a_spec(void) {
    const naa_region regions[] = {region(bytes, 4, NAA_INPUT)};
    naa_session *session = NULL;
    REFUSED(NAA_ERROR_ENVIRONMENT, "NAA_SPEC is not set", naa_session_connect_spec(1, regions, 1, NULL, &session));
    REFUSED(NAA_ERROR_ARGUMENT, "1 to 127", naa_session_connect_spec(0, regions, 1, NULL, &session));
    setenv("NAA_SPEC", "", 1);
    REFUSED(NAA_ERROR_ENVIRONMENT, "NAA_SPEC is not set", naa_session_connect_spec(1, regions, 1, NULL, &session));
    setenv("NAA_SPEC", "10.9.0.1", 1);
    REFUSED(NAA_ERROR_ENVIRONMENT, "NAA_SPEC entry 1", naa_session_connect_spec(1, regions, 1, NULL, &session));
    unsetenv("NAA_SPEC");
    setenv("NAA_LOCAL_IP", "nowhere", 1);
    REFUSED(NAA_ERROR_ENVIRONMENT, "NAA_LOCAL_IP", naa_session_connect(address, regions, 1, NULL, &session));
    unsetenv("NAA_LOCAL_IP");
    setenv("NAA_PROVIDER", "best", 1);
    REFUSED(NAA_ERROR_ENVIRONMENT, "NAA_PROVIDER", naa_session_connect(address, regions, 1, NULL, &session));
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    address = arguments[1];
    nonsense_handles();
    wrong_states();
    another_thread_has_it();
    bad_numbers();
    bad_regions();
    bad_buffers();
    bad_addresses();
    bad_options();
    bad_arguments();
    without_a_spec();
    puts("ok");
    return 0;
}
