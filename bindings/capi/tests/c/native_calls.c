/* Every function of naa.h as it is meant to be used. Argument: the accelerator's address. NAA_PROVIDER is set. */
#include "native_check.h"

static const char *address;

static naa_session *connect_to(const naa_region *regions, size_t count) {
    naa_session *session = NULL;
    OK(naa_session_connect(address, regions, count, NULL, &session));
    CHECK(session != NULL);
    return session;
}

static void texts(void) {
    CHECK(strcmp(naa_version(), "0.1.0") == 0);
    CHECK(strcmp(naa_last_error(), "") == 0);
    CHECK(strcmp(naa_result_name(NAA_OK), "NAA_OK") == 0);
    CHECK(strcmp(naa_result_name(NAA_ERROR_INTERNAL), "NAA_ERROR_INTERNAL") == 0);
    CHECK(strcmp(naa_result_name(7), "unknown") == 0);
    CHECK(naa_function_code("increment") == 1 && naa_function_code("dgemm") == 18);
    CHECK(naa_function_code("") == 0 && naa_function_code(NULL) == 0);
}

static void in_place(void) {
    unsigned char bytes[64];
    memset(bytes, 7, sizeof bytes);
    const naa_region regions[] = {region(bytes, sizeof bytes, NAA_INOUT)};
    naa_session *session = connect_to(regions, 1);
    int32_t state = -1;
    OK(naa_session_state(session, &state));
    CHECK(state == NAA_SESSION_IDLE);
    CHECK(strstr(naa_session_describe(session), getenv("NAA_PROVIDER")) != NULL);
    naa_outcome outcome;
    OK(naa_call(session, INCREMENT, 0, 5000, &outcome));
    CHECK(bytes[0] == 8 && bytes[63] == 8);
    CHECK(outcome.result == NAA_OK && outcome.function == INCREMENT && outcome.return_code == 0);
    CHECK(outcome.last_output_bytes == 64 && outcome.produced[0] == 0);
    OK(naa_call_start(session, INCREMENT, 0));
    OK(naa_session_state(session, &state));
    CHECK(state == NAA_SESSION_RUNNING);
    bool done = false;
    while (!done) {
        OK(naa_call_test(session, &done, &outcome));
    }
    CHECK(bytes[0] == 9 && outcome.function == INCREMENT);
    /* The outcome is of no interest. */
    OK(naa_call(session, INCREMENT, 0, -1, NULL));
    CHECK(bytes[0] == 10);
    OK(naa_session_close(session));
}

static void failures(void) {
    const naa_region none[] = {region(NULL, 0, NAA_INOUT)};
    naa_session *session = connect_to(none, 1);
    naa_outcome outcome;
    REFUSED(NAA_ERROR_FUNCTION, "0x42", naa_call(session, FAIL, 0x42, 5000, &outcome));
    CHECK(outcome.result == NAA_ERROR_FUNCTION && outcome.return_code == 0x42 && outcome.function == FAIL);
    REFUSED(NAA_ERROR_FUNCTION, "does not offer", naa_call(session, 126, 0, 5000, &outcome));
    CHECK(outcome.return_code == 0x10);
    IS(NAA_ERROR_FUNCTION, naa_call(session, FAIL, 0xffffff, 5000, &outcome));
    CHECK(outcome.return_code == 0xffffff);
    /* The session goes on. */
    OK(naa_call(session, FAIL, 0, 5000, &outcome));
    CHECK(outcome.return_code == 0 && outcome.last_output_bytes == 0);
    OK(naa_session_close(session));
}

static void timeouts(void) {
    unsigned char byte = 0;
    const naa_region regions[] = {region(&byte, 1, NAA_INOUT)};
    naa_session *session = connect_to(regions, 1);
    naa_outcome outcome;
    const double start = seconds();
    REFUSED(NAA_ERROR_TIMEOUT, "goes on", naa_call(session, SLEEP, 300, 50, &outcome));
    CHECK(seconds() - start >= 0.05 && seconds() - start < 0.25);
    IS(NAA_ERROR_TIMEOUT, naa_call_wait(session, 0, &outcome));
    OK(naa_call_wait(session, -1, &outcome));
    CHECK(seconds() - start >= 0.3);
    /* Given up. */
    OK(naa_call_start(session, SLEEP, 300));
    OK(naa_session_close(session));
}

static void kinds_of_regions(void) {
    unsigned char once[3] = {1, 2, 3}, always[5] = {10, 0, 0, 0, 0}, result[2] = {0, 0};
    const naa_region regions[] = {
        region(once, 3, NAA_INPUT | NAA_SINGLE_SEND), region(NULL, 100, NAA_INTERNAL), region(always, 5, NAA_INPUT),
        region(NULL, 0, NAA_INPUT), region(result, 2, NAA_OUTPUT),
    };
    naa_session *session = connect_to(regions, 5);
    OK(naa_call(session, SUM, 0, 5000, NULL));
    CHECK(result[0] == 16 && result[1] == 16);
    once[0] = 100;
    always[4] = 4;
    OK(naa_call(session, SUM, 0, 5000, NULL));
    CHECK(result[0] == 20);
    OK(naa_call(session, SUM, 0x010203, 5000, NULL));
    CHECK(result[0] == 26);
    for (int calls = 1; calls <= 3; calls++) {
        OK(naa_call(session, COUNT, 0, 5000, NULL));
        CHECK(result[0] == calls);
    }
    OK(naa_session_close(session));
    /* NAA_SINGLE_SEND alone is an input. */
    const naa_region alone[] = {region(once, 3, NAA_SINGLE_SEND), region(result, 2, NAA_OUTPUT)};
    session = connect_to(alone, 2);
    OK(naa_call(session, SUM, 0, 5000, NULL));
    CHECK(result[0] == 105);
    OK(naa_session_close(session));
    /* Inputs only, outputs only. */
    session = connect_to(regions, 1);
    OK(naa_call(session, INCREMENT, 0, 5000, NULL));
    CHECK(once[0] == 100);
    OK(naa_session_close(session));
    session = connect_to(&regions[4], 1);
    OK(naa_call(session, SUM, 9, 5000, NULL));
    CHECK(result[0] == 9 && result[1] == 9);
    OK(naa_session_close(session));
}

static void constants_are_sent(void) {
    static const char constant[] = "constant";
    unsigned char result = 0;
    const naa_region regions[] = {region((void *)constant, 8, NAA_INPUT), region(&result, 1, NAA_OUTPUT)};
    naa_session *session = connect_to(regions, 2);
    OK(naa_call(session, SUM, 0, 5000, NULL));
    unsigned char sum = 0;
    for (int i = 0; i < 8; i++) {
        sum = (unsigned char)(sum + constant[i]);
    }
    CHECK(result == sum);
    OK(naa_session_close(session));
}

/* Neither the start nor the end of a region is a multiple of anything, and its neighbours stay as they are. */
static void unaligned(void) {
    enum { SIZE = 100003 };
    unsigned char *memory = (unsigned char *)malloc(SIZE + 20);
    CHECK(memory != NULL);
    memset(memory, 1, SIZE + 20);
    const naa_region regions[] = {region(memory + 7, SIZE, NAA_INOUT)};
    naa_session *session = connect_to(regions, 1);
    OK(naa_call(session, INCREMENT, 0, 5000, NULL));
    for (int i = 0; i < SIZE + 20; i++) {
        CHECK(memory[i] == (i >= 7 && i < SIZE + 7 ? 2 : 1));
    }
    OK(naa_session_close(session));
    free(memory);
}

/* One memory in two regions: what is received overwrites what was sent. */
static void the_same_memory_twice(void) {
    unsigned char bytes[1000];
    memset(bytes, 1, sizeof bytes);
    const naa_region regions[] = {region(bytes, 1000, NAA_INPUT), region(bytes + 500, 500, NAA_OUTPUT)};
    naa_session *session = connect_to(regions, 2);
    OK(naa_call(session, SUM, 0, 5000, NULL));
    CHECK(bytes[499] == 1 && bytes[500] == (1000 & 255) && bytes[999] == (1000 & 255));
    OK(naa_session_close(session));
}

static void ranges(void) {
    unsigned char in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out = 0;
    const naa_region regions[] = {region(NULL, 10, NAA_INTERNAL), region(in, 8, NAA_INPUT), region(&out, 1, NAA_OUTPUT)};
    naa_session *session = connect_to(regions, 3);
    OK(naa_session_set_range(session, 1, 2, 3));
    OK(naa_call(session, SUM, 0, 5000, NULL));
    CHECK(out == 3 + 4 + 5);
    memset(in, 1, sizeof in);
    OK(naa_session_set_range(session, 1, 0, 1));
    OK(naa_call(session, SUM, 0, 5000, NULL));
    CHECK(out == 1 + 3 + 4 + 5);
    OK(naa_session_set_range(session, 1, 8, 0));
    OK(naa_call(session, SUM, 0, 5000, NULL));
    CHECK(out == 1 + 3 + 4 + 5);
    OK(naa_session_set_range_all(session, 1));
    OK(naa_call(session, SUM, 0, 5000, NULL));
    CHECK(out == 8);
    OK(naa_session_close(session));
}

static void built_in_functions(void) {
    unsigned char arguments[NAA_BLOCK_BYTES], status[NAA_BLOCK_BYTES];
    double a[2 * 3] = {1, 2, 3, 4, 5, 6}, b[3 * 2] = {1, 0, 0, 1, 1, 1}, c[2 * 2] = {0, 0, 0, 0};
    const naa_region regions[] = {
        region(arguments, sizeof arguments, NAA_INPUT), region(a, sizeof a, NAA_INPUT), region(b, sizeof b, NAA_INPUT),
        region(status, sizeof status, NAA_OUTPUT), region(c, sizeof c, NAA_OUTPUT),
    };
    naa_session *session = connect_to(regions, 5);
    const int64_t sizes[] = {2, 2, 3};
    OK(naa_arguments(arguments, DGEMM, sizes, 3));
    naa_outcome outcome;
    OK(naa_call(session, DGEMM, 0, 5000, &outcome));
    CHECK(c[0] == 4 && c[1] == 5 && c[2] == 10 && c[3] == 11);
    CHECK(outcome.produced[0] == 64 && outcome.produced[1] == sizeof c && outcome.detail == 0);
    /* The arguments of one function are not those of another. */
    IS(NAA_ERROR_FUNCTION, naa_call(session, SHA256, 0, 5000, &outcome));
    CHECK(outcome.return_code == 0x11);
    OK(naa_session_close(session));
}

/* Finds functions by their names in the catalogue, also while a call runs. */
static void functions_by_name(void) {
    unsigned char bytes[4] = {0, 0, 0, 0};
    const naa_region regions[] = {region(bytes, sizeof bytes, NAA_INOUT)};
    naa_session *session = connect_to(regions, 1);
    int32_t code = -1;
    OK(naa_call_start(session, SLEEP, 200));
    OK(naa_session_find_function(session, "sum", &code));
    CHECK(code == SUM);
    OK(naa_session_find_function(session, "dgemm", &code));
    CHECK(code == DGEMM && code == naa_function_code("dgemm"));
    OK(naa_call_wait(session, 5000, NULL));
    OK(naa_session_find_function(session, "sum", &code));
    OK(naa_call(session, code, 7, 5000, NULL));
    CHECK(bytes[0] == 7 && bytes[3] == 7);
    const naa_function *functions = NULL, *again = NULL;
    size_t count = 0, same = 0;
    OK(naa_session_functions(session, &functions, &count));
    OK(naa_session_functions(session, &again, &same));
    CHECK(functions == again && count == same && count > 15);
    for (size_t i = 0; i < count; i++) {
        CHECK(i == 0 || functions[i].code > functions[i - 1].code);
        OK(naa_session_find_function(session, functions[i].name, &code));
        CHECK(code == functions[i].code);
        if (code == DGEMM) {
            CHECK(strcmp(functions[i].parameters, "<a:f64 <b:f64 >c:f64") == 0);
            CHECK(strstr(functions[i].description, "product") != NULL);
        }
        CHECK(code != SLEEP || strcmp(functions[i].parameters, "any") == 0);
    }
    OK(naa_session_close(session));
}

static void too_small_an_output(void) {
    static unsigned char data[10000];
    unsigned char arguments[NAA_BLOCK_BYTES], status[NAA_BLOCK_BYTES], packed[200], unpacked[10];
    const naa_region pack[] = {
        region(arguments, 64, NAA_INPUT), region(data, sizeof data, NAA_INPUT), region(status, 64, NAA_OUTPUT),
        region(packed, sizeof packed, NAA_OUTPUT),
    };
    naa_session *session = connect_to(pack, 4);
    const int64_t values[] = {(int64_t)sizeof data, 0};
    OK(naa_arguments(arguments, ZSTD, values, 2));
    naa_outcome outcome;
    OK(naa_call(session, ZSTD, 0, 5000, &outcome));
    const int64_t size = (int64_t)outcome.produced[1];
    CHECK(size > 0 && size < 200);
    OK(naa_session_close(session));
    const naa_region unpack[] = {
        region(arguments, 64, NAA_INPUT), region(packed, sizeof packed, NAA_INPUT), region(status, 64, NAA_OUTPUT),
        region(unpacked, sizeof unpacked, NAA_OUTPUT),
    };
    session = connect_to(unpack, 4);
    OK(naa_arguments(arguments, UNZSTD, &size, 1));
    REFUSED(NAA_ERROR_FUNCTION, "10000 bytes are needed", naa_call(session, UNZSTD, 0, 5000, &outcome));
    CHECK(outcome.return_code == 0x13 && outcome.detail == sizeof data);
    OK(naa_session_close(session));
}

static void buffers(void) {
    naa_buffer *buffer = NULL, *wrapped = NULL;
    OK(naa_buffer_alloc(100000, &buffer));
    unsigned char *memory = (unsigned char *)naa_buffer_data(buffer);
    CHECK(memory != NULL && memory[0] == 0 && memory[99999] == 0 && naa_buffer_size(buffer) == 100000);
    static unsigned char own[5000];
    OK(naa_buffer_wrap(own, sizeof own, &wrapped));
    CHECK(naa_buffer_data(wrapped) == own && naa_buffer_size(wrapped) == sizeof own);
    const naa_region regions[] = {region(memory + 5, 50000, NAA_INOUT), region(own, sizeof own, NAA_INOUT)};
    for (int round = 1; round <= 5; round++) {
        naa_session *session = connect_to(regions, 2);
        OK(naa_call(session, INCREMENT, 0, 5000, NULL));
        CHECK(memory[4] == 0 && memory[5] == round && memory[50004] == round && memory[50005] == 0);
        CHECK(own[0] == round && own[4999] == round);
        OK(naa_session_close(session));
    }
    /* Freed while a session has it: it goes with the session. */
    naa_session *session = connect_to(regions, 2);
    OK(naa_buffer_free(buffer));
    CHECK(naa_buffer_data(buffer) == NULL && naa_buffer_size(buffer) == 0);
    OK(naa_call(session, INCREMENT, 0, 5000, NULL));
    CHECK(memory[5] == 6);
    OK(naa_session_close(session));
    OK(naa_buffer_free(wrapped));
    OK(naa_buffer_free(NULL));
    OK(naa_buffer_alloc(0, &buffer));
    CHECK(naa_buffer_size(buffer) == 0);
    OK(naa_buffer_free(buffer));
}

static void options(void) {
    unsigned char byte = 0;
    const naa_region regions[] = {region(&byte, 1, NAA_INOUT)};
    naa_options options;
    OK(naa_options_init(&options, sizeof options));
    CHECK(options.struct_size == sizeof options && options.local_address == NULL && options.wait == NAA_WAIT_ADAPTIVE);
    if (strcmp(getenv("NAA_PROVIDER"), "embedded") == 0) {
        options.provider = NAA_PROVIDER_EMBEDDED;
        options.local_address = "127.0.0.1";
    } else {
        options.provider = NAA_PROVIDER_VERBS;
    }
    options.setup_timeout_ms = 3000;
    options.probe_interval_ms = -1;
    options.silence_ms = 100;
    for (int wait = NAA_WAIT_ADAPTIVE; wait <= NAA_WAIT_BLOCK; wait++) {
        options.wait = wait;
        naa_session *session = NULL;
        OK(naa_session_connect(address, regions, 1, &options, &session));
        CHECK(options.local_address == NULL || strstr(naa_session_describe(session), options.local_address) != NULL);
        OK(naa_call(session, INCREMENT, 0, 5000, NULL));
        CHECK(byte == wait + 1);
        OK(naa_session_close(session));
    }
    /* An answer has bits for the user, not a return code. */
    options.dialect = NAA_DIALECT_NEXT;
    naa_session *session = NULL;
    OK(naa_session_connect(address, regions, 1, &options, &session));
    naa_outcome outcome;
    OK(naa_call(session, FAIL, 0x1234, 5000, &outcome));
    CHECK(outcome.user == 0x1234 && outcome.return_code == 0);
    OK(naa_session_close(session));
    /* As later versions may have it: longer, the rest zero. */
    struct {
        naa_options known;
        uint64_t unknown;
    } longer;
    OK(naa_options_init(&longer.known, sizeof longer));
    OK(naa_session_connect(address, regions, 1, &longer.known, &session));
    OK(naa_session_close(session));
}

/* More regions than a message has, of unaligned sizes, and one that is large. */
static void layouts(void) {
    enum { REGIONS = 40, LARGE = 100000 };
    static unsigned char bytes[REGIONS][LARGE];
    static const char *const names[] = {"", "asymmetric", "gathered", "packed:700", NULL};
    for (int32_t layout = NAA_LAYOUT_ASYMMETRIC; layout <= NAA_LAYOUT_AUTO; layout++) {
        naa_region regions[REGIONS];
        for (size_t i = 0; i < REGIONS; i++) {
            regions[i] = region(bytes[i], i == 7 ? (size_t)LARGE : 1 + 37 * i, NAA_INOUT);
            memset(bytes[i], (int)i, LARGE);
        }
        naa_options options;
        OK(naa_options_init(&options, sizeof options));
        options.layout = layout;
        options.packed_bytes = 700;
        naa_session *session = NULL;
        OK(naa_session_connect(address, regions, REGIONS, &options, &session));
        const char *name = names[layout];
        CHECK(name == NULL || strstr(naa_session_describe(session), name) != NULL);
        for (int call = 1; call <= 3; call++) {
            OK(naa_call(session, INCREMENT, 0, 5000, NULL));
            for (size_t i = 0; i < REGIONS; i++) {
                CHECK(bytes[i][0] == i + call && bytes[i][regions[i].size - 1] == i + call);
                CHECK(i == 7 || bytes[i][regions[i].size] == i);
            }
        }
        OK(naa_session_close(session));
    }
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    address = arguments[1];
    texts();
    in_place();
    failures();
    timeouts();
    kinds_of_regions();
    constants_are_sent();
    unaligned();
    the_same_memory_twice();
    ranges();
    built_in_functions();
    functions_by_name();
    too_small_an_output();
    buffers();
    options();
    layouts();
    puts("ok");
    return 0;
}
