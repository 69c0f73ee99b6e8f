/* A program on NAAICE's middleware: NAA_SPEC=ADDRESS:PORT:CODE:2 middleware INCREMENT
 *
 * The function is expected to add INCREMENT to every byte of the second parameter, call after call. */
#include <naaice_ap2.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLS 20

static int fail(const char *what) {
    fprintf(stderr, "middleware: %s failed\n", what);
    return EXIT_FAILURE;
}

/* The function code of the first entry of NAA_SPEC. */
static naa_function_code_t code_of(const char *spec) {
    const char *colon = spec ? strchr(spec, ':') : NULL;
    colon = colon ? strchr(colon + 1, ':') : NULL;
    return colon ? (naa_function_code_t)atoi(colon + 1) : 0;
}

int main(int argc, char **argv) {
    const int increment = argc > 1 ? atoi(argv[1]) : 1;
    static unsigned char once[256], data[100000];
    naa_param_t inputs[] = {
        {.addr = once, .size = sizeof once, .single_send = true},
        {.addr = data, .size = sizeof data, .single_send = false},
    };
    naa_param_t outputs[] = {{.addr = data, .size = sizeof data, .single_send = false}};
    naa_handle handle;
    naa_status status;
    if (naa_create(code_of(getenv("NAA_SPEC")), inputs, 2, outputs, 1, &handle) != 0)
        return fail("naa_create");
    for (int call = 1; call <= CALLS; call++) {
        bool done = false;
        if (naa_invoke(&handle) != 0)
            return fail("naa_invoke");
        /* Every second call is tested for, the others are waited for. */
        while (call % 2 && !done)
            if (naa_test(&handle, &done, &status) != 0)
                return fail("naa_test");
        if (!done && naa_wait(&handle, &status) != 0)
            return fail("naa_wait");
        if (status.state != NAAICE_FINISHED || status.naa_error != NAA_SUCCESS)
            return fail("a call");
        for (size_t i = 0; i < sizeof data; i++)
            if (data[i] != (unsigned char)(call * increment))
                return fail("comparing the result");
    }
    if (naa_finalize(&handle) != 0)
        return fail("naa_finalize");
    printf("middleware: %d calls right\n", CALLS);
    return EXIT_SUCCESS;
}
