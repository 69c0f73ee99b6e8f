/* NAA_SPEC: entries are taken, given back, and told apart. Arguments: two accelerators. */
#include "native_check.h"

int main(int count, char **arguments) {
    CHECK(count == 3);
    char spec[256];
    CHECK(snprintf(spec, sizeof spec, "%s::1:1,[::1]:9:1:3, %s:12345:1:1", arguments[1], arguments[2]) < 256);
    CHECK(setenv("NAA_SPEC", spec, 1) == 0);
    unsigned char bytes[2][4] = {{1, 1, 1, 1}, {5, 5, 5, 5}}, third[4];
    naa_session *sessions[2], *none = NULL;
    for (int i = 0; i < 2; i++) {
        const naa_region regions[] = {region(bytes[i], 4, NAA_INOUT), region(NULL, 5, NAA_INTERNAL)};
        OK(naa_session_connect_spec(INCREMENT, regions, 2, NULL, &sessions[i]));
    }
    CHECK(naa_call_start(sessions[0], INCREMENT, 0) == NAA_OK && naa_call_start(sessions[1], INCREMENT, 0) == NAA_OK);
    OK(naa_call_wait_all(sessions, 2, 5000, NULL));
    CHECK(bytes[0][3] == 2 && bytes[1][3] == 6);
    const naa_region regions[] = {region(third, 4, NAA_INOUT)};
    REFUSED(NAA_ERROR_ENVIRONMENT, "in use", naa_session_connect_spec(INCREMENT, regions, 1, NULL, &none));
    const naa_region outputs[] = {region(third, 4, NAA_OUTPUT)};
    REFUSED(NAA_ERROR_ENVIRONMENT, "no accelerator", naa_session_connect_spec(INCREMENT, outputs, 1, NULL, &none));
    REFUSED(NAA_ERROR_ENVIRONMENT, "no accelerator", naa_session_connect_spec(2, regions, 1, NULL, &none));
    CHECK(none == NULL);
    OK(naa_session_close(sessions[1]));
    OK(naa_session_connect_spec(INCREMENT, regions, 1, NULL, &sessions[1]));
    OK(naa_call(sessions[1], INCREMENT, 0, 5000, NULL));
    OK(naa_session_close(sessions[0]));
    OK(naa_session_close(sessions[1]));
    puts("ok");
    return 0;
}
