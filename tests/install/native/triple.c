/* A library of kernels for `naa serve --kernels`: function 96 multiplies bytes by three. */
#include <naa_kernel.h>

static int32_t triple(naa_kernel_call *call) {
    unsigned char *bytes = call->data[0].address;
    for (uint64_t i = 0; i < call->data[0].size; i++)
        bytes[i] = (unsigned char)(bytes[i] * 3);
    return 0;
}

static const naa_kernel_parameter parameters[] = {
    {NAA_KERNEL_INOUT, NAA_KERNEL_BYTES, "bytes", "multiplied in place"},
};

static const naa_kernel kernels[] = {
    {96, 1, "triple", "multiplies every byte by three", parameters, triple},
};

NAA_KERNELS(kernels)
