/* A child connects anew; what it does with its parent's session harms nobody. Argument: the accelerator's address. */
#include "native_check.h"
#include <sys/wait.h>
#include <unistd.h>

static unsigned char bytes[2][8];

static naa_session *connect_to(const char *address, unsigned char *memory) {
    const naa_region regions[] = {region(memory, 8, NAA_INOUT)};
    naa_session *session = NULL;
    OK(naa_session_connect(address, regions, 1, NULL, &session));
    OK(naa_call(session, INCREMENT, 0, 5000, NULL));
    return session;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    naa_session *parents = connect_to(arguments[1], bytes[0]);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(naa_call(parents, INCREMENT, 0, 1000, NULL) != NAA_OK);
        naa_session *own = connect_to(arguments[1], bytes[1]);
        CHECK(bytes[1][7] == 1);
        OK(naa_session_close(own));
        naa_session_close(parents);
        fflush(stdout);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(naa_call(parents, INCREMENT, 0, 5000, NULL));
    CHECK(bytes[0][0] == 2 && bytes[1][0] == 0);
    OK(naa_session_close(parents));
    puts("ok");
    return 0;
}
