/*
 * Two kernels for `naa serve --kernels ./libexample.so`; naa_kernel.h explains.
 */
#include <inttypes.h>
#include <math.h>
#include <naa_kernel.h>
#include <stdio.h>

/* y = a * x + y; the factor is a parameter of one double. */
static int32_t axpy(naa_kernel_call *call) {
    const naa_kernel_data *a = &call->data[0], *x = &call->data[1], *y = &call->data[2];
    if (a->size < sizeof(double) || x->size != y->size) {
        snprintf(call->text, call->text_size, "a has %" PRIu64 " bytes, x %" PRIu64 ", y %" PRIu64, a->size, x->size,
                 y->size);
        return NAA_KERNEL_ERROR_BAD_ARGUMENTS;
    }
    const double factor = *(const double *)a->address;
    const double *in = (const double *)x->address;
    double *out = (double *)y->address;
    for (uint64_t i = 0; i < y->size / sizeof(double); i++)
        out[i] += factor * in[i];
    return 0;
}

/* Keeps what is not NaN: the result may be shorter than the output. */
static int32_t drop_nan(naa_kernel_call *call) {
    const naa_kernel_data *in = &call->data[0];
    naa_kernel_data *out = &call->data[1];
    const double *values = (const double *)in->address;
    double *kept = (double *)out->address;
    uint64_t count = 0;
    for (uint64_t i = 0; i < in->size / sizeof(double); i++) {
        if (isnan(values[i]))
            continue;
        if ((count + 1) * sizeof(double) > out->size)
            return NAA_KERNEL_ERROR_OUTPUT_TOO_SMALL;
        kept[count++] = values[i];
    }
    out->produced = count * sizeof(double);
    return 0;
}

static const naa_kernel_parameter axpy_parameters[] = {
    {NAA_KERNEL_INPUT, NAA_KERNEL_F64, "a", "one number"},
    {NAA_KERNEL_INPUT, NAA_KERNEL_F64, "x", "n numbers"},
    {NAA_KERNEL_INOUT, NAA_KERNEL_F64, "y", "n numbers; becomes a x + y"},
};

static const naa_kernel_parameter drop_nan_parameters[] = {
    {NAA_KERNEL_INPUT, NAA_KERNEL_F64, "values", "n numbers"},
    {NAA_KERNEL_OUTPUT, NAA_KERNEL_F64, "kept", "those that are not NaN, in order"},
};

static const naa_kernel kernels[] = {
    {96, 3, "axpy", "adds a multiple of a vector to another", axpy_parameters, axpy},
    {97, 2, "drop-nan", "drops what is not a number", drop_nan_parameters, drop_nan},
};

NAA_KERNELS(kernels)
