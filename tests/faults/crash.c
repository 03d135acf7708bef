/* Death at the n-th change to a file: preloaded into a process, it kills it right before that write, flush, rename or
 * removal is done. R2MED_CRASH_AT says which; every place where a run can be torn is reached by counting up. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long changes;

static void step(void)
{
    const char *at = getenv("R2MED_CRASH_AT");
    if (at && atomic_fetch_add(&changes, 1) + 1 == atol(at))
        kill(getpid(), SIGKILL);
}

#define NEXT(name, type) ((type)dlsym(RTLD_NEXT, name))

ssize_t write(int file, const void *data, size_t size)
{
    if (file > 2)
        step();
    return NEXT("write", ssize_t (*)(int, const void *, size_t))(file, data, size);
}

int fsync(int file)
{
    step();
    return NEXT("fsync", int (*)(int))(file);
}

int rename(const char *from, const char *to)
{
    step();
    return NEXT("rename", int (*)(const char *, const char *))(from, to);
}

int unlink(const char *path)
{
    step();
    return NEXT("unlink", int (*)(const char *))(path);
}
