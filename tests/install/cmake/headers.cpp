// Every header from C++, under both of its names, and the library from there.
#include <naa.h>
#include <naa_kernel.h>

#include <naaice.h>
#include <naaice_ap2.h>
#include <naaice_swnaa.h>
#include <swnaa_kernels.h>
#include <ulog.h>

#include <naaice/naaice.h>

#include <cstdio>

int main() {
    naaice_communication_context context{};
    context.state = NAAICE_INIT;
    naa_handle handle{};
    bool done = false;
    naa_status status{};
    // A handle that was never created.
    return naa_test(&handle, &done, &status) == -1 && context.state == NAAICE_INIT ? 0 : 1;
}
