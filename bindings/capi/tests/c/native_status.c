/* Two calls of a built-in function that fail with the same return code; only the first brings a status block. Arguments:
 * the accelerator's address, and `next` for a single call in that dialect, in which only the status block says that a call
 * failed. */
#include "native_check.h"

int main(int count, char **arguments) {
    CHECK(count == 2 || (count == 3 && strcmp(arguments[2], "next") == 0));
    unsigned char block[NAA_BLOCK_BYTES], status[NAA_BLOCK_BYTES];
    const naa_region regions[] = {
        region(NULL, 10, NAA_INTERNAL),
        region(block, sizeof block, NAA_INPUT),
        region(status, sizeof status, NAA_OUTPUT),
    };
    memset(status, 0, sizeof status);
    naa_options options;
    OK(naa_options_init(&options, sizeof options));
    options.dialect = count == 3 ? NAA_DIALECT_NEXT : NAA_DIALECT_MAIN;
    naa_session *session = NULL;
    OK(naa_session_connect(arguments[1], regions, 3, &options, &session));
    const int64_t size = 8;
    OK(naa_arguments(block, UNZSTD, &size, 1));
    naa_outcome outcome;
    REFUSED(NAA_ERROR_FUNCTION, "4321 bytes are needed", naa_call(session, UNZSTD, 0, 5000, &outcome));
    CHECK(outcome.return_code == 0x13 && outcome.detail == 4321 && outcome.produced[0] == 64);
    CHECK(outcome.result == NAA_ERROR_FUNCTION);
    if (count == 2) {
        IS(NAA_ERROR_FUNCTION, naa_call(session, UNZSTD, 0, 5000, &outcome));
        CHECK(strstr(naa_last_error(), "bytes are needed") == NULL);
        CHECK(outcome.return_code == 0x13 && outcome.detail == 0 && outcome.produced[0] == 0);
    }
    OK(naa_session_close(session));
    puts("ok");
    return 0;
}
