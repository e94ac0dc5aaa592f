/* See cli_progress.h. */
#include "cli_progress.h"

#include <string.h>
#include <unistd.h>

#include "cli_stop.h"
#include "cli_words.h"

#define EVERY_MS 100u
#define BAR_CELLS 30u

void cli_progress_begin(cli_session *session, const char *label) {
    const bool shown =
        !session->options.json && !session->options.quiet && isatty(STDERR_FILENO) == 1;
    const uint64_t now = cli_now_ns();
    session->bar = (cli_bar){shown ? label : NULL, now, now, false};
}

static void draw(const cli_bar *progress, uint64_t now, uint64_t done, uint64_t total) {
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

int cli_progress_update(void *user, uint64_t done_bytes, uint64_t total_bytes) {
    cli_session *session = user;
    cli_bar *bar = &session->bar;
    const uint64_t now = cli_now_ns();
    if (bar->label != NULL && now >= bar->next_ns) {
        bar->next_ns = now + EVERY_MS * UINT64_C(1000000);
        bar->drawn = true;
        draw(bar, now, done_bytes, total_bytes);
    }
    return session->signals_call_off && cli_stop_wanted();
}

void cli_progress_end(cli_session *session) {
    if (session->bar.drawn)
        fputs("\r\033[K", stderr);
    session->bar = (cli_bar){0};
}
