/* Two calls of a built-in function that fail with the same return code; only the first brings a status block. Argument:
 * the accelerator's address. */
#include "native_check.h"

int main(int count, char **arguments) {
    CHECK(count == 2);
    unsigned char block[NAA_BLOCK_BYTES], status[NAA_BLOCK_BYTES];
    const naa_region regions[] = {
        region(NULL, 10, NAA_INTERNAL),
        region(block, sizeof block, NAA_INPUT),
        region(status, sizeof status, NAA_OUTPUT),
    };
    memset(status, 0, sizeof status);
    naa_session *session = NULL;
    OK(naa_session_connect(arguments[1], regions, 3, NULL, &session));
    const int64_t size = 8;
    OK(naa_arguments(block, UNZSTD, &size, 1));
    naa_outcome outcome;
    REFUSED(NAA_ERROR_FUNCTION, "4321 bytes are needed", naa_call(session, UNZSTD, 0, 5000, &outcome));
    CHECK(outcome.return_code == 0x13 && outcome.detail == 4321 && outcome.produced[0] == 64);
    IS(NAA_ERROR_FUNCTION, naa_call(session, UNZSTD, 0, 5000, &outcome));
    CHECK(strstr(naa_last_error(), "bytes are needed") == NULL);
    CHECK(outcome.return_code == 0x13 && outcome.detail == 0 && outcome.produced[0] == 0);
    OK(naa_session_close(session));
    puts("ok");
    return 0;
}
