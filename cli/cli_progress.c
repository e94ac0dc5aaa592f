/* See cli_progress.h. */
#include "cli_progress.h"

#include <string.h>
#include <unistd.h>

#include "cli_stop.h"
#include "cli_words.h"

#define EVERY_MS 100u
#define BAR_CELLS 30u

void cli_progress_begin(cli_progress *progress, const cli_session *session, const char *label) {
    memset(progress, 0, sizeof *progress);
    progress->shown =
        !session->options.json && !session->options.quiet && isatty(STDERR_FILENO) == 1;
    progress->label = label;
    progress->start_ns = cli_now_ns();
    atomic_init(&progress->next_ns, progress->start_ns);
}

static void draw(cli_progress *progress, uint64_t now, uint64_t done, uint64_t total) {
    char bar[BAR_CELLS + 1];
    const double share = total > 0 ? (double)done / (double)total : 0;
    const double elapsed = (double)(now - progress->start_ns);
    const size_t full = share >= 1 ? BAR_CELLS : (size_t)(share * BAR_CELLS);
    memset(bar, '.', BAR_CELLS);
    memset(bar, '#', full);
    bar[BAR_CELLS] = '\0';
    fprintf(stderr, "\r\033[K%s [%s] %s of %s, %s", progress->label, bar,
            cli_bytes((double)done).text, cli_bytes((double)total).text,
            cli_rate((double)done, elapsed).text);
    if (share > 0.01 && share < 1)
        fprintf(stderr, ", %.0f s left", elapsed * (1 - share) / share / 1e9);
    fflush(stderr);
}

/* One thread at a time wins the right to draw; the others go on with their work. */
void cli_progress_update(void *user, uint64_t done_bytes, uint64_t total_bytes) {
    cli_progress *progress = user;
    if (!progress->shown)
        return;
    const uint64_t now = cli_now_ns();
    uint64_t next = atomic_load(&progress->next_ns);
    if (now < next || !atomic_compare_exchange_strong(&progress->next_ns, &next,
                                                      now + EVERY_MS * UINT64_C(1000000)))
        return;
    atomic_store(&progress->drawn, true);
    draw(progress, now, done_bytes, total_bytes);
}

void cli_progress_end(cli_progress *progress) {
    if (atomic_load(&progress->drawn))
        fputs("\r\033[K", stderr);
}
