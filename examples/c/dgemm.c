/*
 * C = A * B on several accelerators, or several times on one: each session has a band of the rows of A, and all bands are
 * under way at once.
 *
 *     make dgemm
 *     naa serve --bind 127.0.0.1 &
 *     ./dgemm 600 127.0.0.1 127.0.0.1
 */
#include <math.h>
#include <naa.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 64 };

/* The rows of one session, and the blocks that the built-in dgemm wants. */
struct band {
    size_t first, rows;
    unsigned char arguments[NAA_BLOCK_BYTES], status[NAA_BLOCK_BYTES];
};

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, naa_last_error());
    exit(EXIT_FAILURE);
}

static naa_session *start(struct band *band, const char *address, double *a, double *b, double *c, size_t n) {
    const size_t at = band->first * n, bytes = band->rows * n * sizeof *a;
    const int64_t sizes[] = {(int64_t)band->rows, (int64_t)n, (int64_t)n};
    const naa_region regions[] = {
        {band->arguments, sizeof band->arguments, NAA_INPUT},
        {a + at, bytes, NAA_INPUT},
        {b, n * n * sizeof *b, NAA_INPUT},
        {band->status, sizeof band->status, NAA_OUTPUT},
        {c + at, bytes, NAA_OUTPUT},
    };
    naa_session *session;
    if (naa_arguments(band->arguments, naa_function_code("dgemm"), sizes, 3) != NAA_OK
        || naa_session_connect(address, regions, 5, NULL, &session) != NAA_OK
        || naa_call_start(session, naa_function_code("dgemm"), 0) != NAA_OK) {
        fail(address);
    }
    printf("rows %zu to %zu: %s, %s\n", band->first, band->first + band->rows - 1, address, naa_session_describe(session));
    return session;
}

/* The largest difference from the same computation done here. */
static double error_of(const double *a, const double *b, const double *c, size_t n) {
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            double sum = 0;
            for (size_t k = 0; k < n; k++) {
                sum += a[i * n + k] * b[k * n + j];
            }
            worst = fmax(worst, fabs(sum - c[i * n + j]));
        }
    }
    return worst;
}

int main(int count, char **arguments) {
    const size_t n = count > 2 ? strtoul(arguments[1], NULL, 10) : 0, bands = count > 2 ? (size_t)count - 2 : 0;
    if (bands == 0 || bands > MOST || n < bands || n > 10000) {
        fprintf(stderr, "usage: %s SIZE ADDRESS...   (C = A * B, SIZE x SIZE, a band for each address)\n", arguments[0]);
        return EXIT_FAILURE;
    }
    double *a = malloc(n * n * sizeof *a), *b = malloc(n * n * sizeof *b), *c = malloc(n * n * sizeof *c);
    if (a == NULL || b == NULL || c == NULL) {
        fprintf(stderr, "no memory for three matrices of %zu x %zu\n", n, n);
        return EXIT_FAILURE;
    }
    for (size_t i = 0; i < n * n; i++) {
        a[i] = (double)(i % 17) - 8;
        b[i] = (double)(i % 23) / 7;
    }
    struct band all[MOST];
    naa_session *sessions[MOST];
    for (size_t i = 0; i < bands; i++) {
        all[i].first = i * n / bands;
        all[i].rows = (i + 1) * n / bands - all[i].first;
        sessions[i] = start(&all[i], arguments[2 + i], a, b, c, n);
    }
    for (size_t done = 0; done < bands; done++) {
        int64_t index;
        if (naa_call_wait_any(sessions, bands, 60000, &index, NULL) != NAA_OK) {
            fail(index == NAA_UNDEFINED ? "no band is ready within a minute" : arguments[2 + index]);
        }
        printf("rows from %zu on are there\n", all[index].first);
    }
    for (size_t i = 0; i < bands; i++) {
        if (naa_session_close(sessions[i]) != NAA_OK) {
            fail(arguments[2 + i]);
        }
    }
    const double error = error_of(a, b, c, n);
    free(a);
    free(b);
    free(c);
    if (error > 1e-9) {
        printf("wrong: off by %g\n", error);
        return EXIT_FAILURE;
    }
    puts("ok");
    return EXIT_SUCCESS;
}
