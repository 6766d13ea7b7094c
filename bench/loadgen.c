/*
 * loadgen: the one load generator for everything we compare.
 *
 * It speaks RESP to redis-server and to a Holdfast node, over the same sockets with the same code, so
 * that a difference between two runs is a difference between two servers. One thread, one epoll set.
 *
 * How a run goes:
 *
 *     open N connections, each greeted with PING  ──►  read the server's CPU clock
 *     each connection, on its own:  send a batch of P commands ─► await and check P replies ─► next batch
 *     all requests answered  ──►  read the server's CPU clock again  ──►  one JSON object on stdout
 *
 * A mode is a list of one or three commands. With one, every batch is the same command. `cycle` has
 * three: a batch adds P jobs, the next gets P jobs, the last acknowledges exactly those.
 *
 * Every reply is checked for type and content: a server that answers quickly but wrongly must not look
 * fast. "Nothing there" (an empty queue, an id nobody knows) is a miss; everything else that is not the
 * expected reply is an error, and the first one is kept as text. Each body opens with a serial number of
 * eight hex digits, so with --once a job that is handed out twice is an error too.
 *
 * The CPU clock is the sum of /proc/PID/task/<tid>/schedstat over the server's threads. It is read here and
 * not by our caller, because only here is it known when connecting ended and the work began.
 *
 * Exit codes: 0 all good, 1 wrong usage or no server, 2 stalled, 3 connection lost or not RESP,
 *             4 ran to the end with misses or errors. From 2 on, the JSON object is printed as well.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* ---------------------------------------------------------------- limits ---------------------------- */

enum {
    ID_BYTES = 48,                    /* DI + node 8 + sequence 16 + random 16 + ttl 4 + SQ */
    SERIAL_BYTES = 8,                 /* hex digits at the start of a body; shorter bodies carry none */
    TOKENS_KEPT_MAX = 8,              /* a GETJOB reply with one job has five */
    READ_BYTES = 64 * 1024,           /* room offered to one recv() */
    EVENTS_MAX = 1024,                /* ready connections taken per epoll_wait() */
    ERROR_TEXT_MAX = 200,             /* of the first error, shown in the result */
    SETTLE_US = 20 * 1000,            /* the server goes idle before its clock is read: a running thread's is stale */
    STALL_MS_DEFAULT = 10 * 1000,
    CONNECTIONS_MAX = 10000,
    PIPELINE_MAX = 10000,
    BODY_BYTES_MAX = 16 * 1024 * 1024,
    IDS_PER_ACK_MAX = 1000,
    ADD_OPTION_WORDS_MAX = 64,
    PHASES_MAX = 3,
};

enum exit_code {
    EXIT_FINE = 0,
    EXIT_USAGE = 1,
    EXIT_STALLED = 2,
    EXIT_LOST = 3,
    EXIT_WRONG = 4,
};

/* ---------------------------------------------------------------- what we can be asked to do -------- */

enum command { PING, LPUSH, RPOP, ADDJOB, GETJOB, ACKJOB, COMMANDS };

static const char *const COMMAND_NAMES[COMMANDS] = {"ping", "lpush", "rpop", "addjob", "getjob", "ackjob"};

struct mode {
    const char *name;
    int phases;
    enum command phase[PHASES_MAX];
};

static const struct mode MODES[] = {
    {"ping", 1, {PING}},
    {"lpush", 1, {LPUSH}},
    {"rpop", 1, {RPOP}},
    {"addjob", 1, {ADDJOB}},
    {"getjob", 1, {GETJOB}},
    {"ackjob", 1, {ACKJOB}},
    {"cycle", 3, {ADDJOB, GETJOB, ACKJOB}},
};

struct options {
    const char *host;
    int port;
    const char *unix_path;            /* when set, host and port are not used */
    const struct mode *mode;
    long connections;
    long pipeline;                    /* commands per batch */
    long requests;                    /* jobs in all; for ackjob ids, however many a command carries */
    long body_bytes;
    const char *queue;                /* the list's key, for redis */
    const char *ids_path;
    const char *add_options;          /* further words of ADDJOB, separated by blanks; # is a key, see `keys` */
    long keys;                        /* how many different keys there are; 0: each job has its own */
    long add_timeout_ms;
    long ids_per_ack;
    bool once;
    long server_pid;                  /* 0: do not read its CPU clock */
    long stall_ms;
};

static struct options options = {
    .host = "127.0.0.1",
    .connections = 50,
    .pipeline = 1,
    .requests = 100000,
    .body_bytes = 64,
    .queue = "q",
    .add_options = "",
    .ids_per_ack = 1,
    .stall_ms = STALL_MS_DEFAULT,
};

/* ---------------------------------------------------------------- the state of a run ---------------- */

struct buffer {
    char *data;
    size_t length;
    size_t capacity;
};

struct connection {
    int fd;
    int phase;                        /* index into mode->phase */
    struct buffer in;                 /* received, not yet a whole reply */
    struct buffer out;                /* the batch being sent */
    size_t out_sent;
    bool wants_write;                 /* the socket was full: epoll tells us when it is not */
    long jobs_in_batch;
    long replies_due;
    long ids_due;                     /* ackjob: ids sent and not yet confirmed */
    int64_t sent_at_ns;
    int64_t list_length;              /* lpush: the last length we were told */
    char *held;                       /* cycle: ids to acknowledge, ID_BYTES each */
    long held_count;
};

struct totals {
    long issued;                      /* jobs asked for, in the first phase */
    long ops;                         /* jobs answered, in the last phase */
    long commands;                    /* replies read */
    long misses;
    long errors;
    char first_error[ERROR_TEXT_MAX];
    double seconds;
};

struct cpu_clock {
    int64_t ran_ns;
    int64_t waited_ns;                /* runnable, but somebody else had the core: a gauge of noise */
};

static struct totals totals;
static struct connection *connections;
static int epoll_fd;

static struct buffer body;            /* what every body looks like, apart from its serial number */
static struct buffer templates[COMMANDS];
static size_t serial_offset[COMMANDS];/* where in the template the serial number goes */
static size_t key_offset;              /* and where the key of a job goes; 0: it has none */
static long serials_used;
static uint8_t *serials_seen;         /* --once: one bit each */

static char *ids;                     /* collected by getjob, consumed by ackjob; ID_BYTES each */
static long ids_count;
static long ids_taken;

static uint32_t *latencies_us;        /* one per batch */
static size_t latencies_count;
static size_t latencies_capacity;

static struct cpu_clock clock_before;
static struct cpu_clock clock_after;

/* ---------------------------------------------------------------- small tools ----------------------- */

static void fail(const char *format, ...)
{
    va_list arguments;
    fputs("loadgen: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(EXIT_USAGE);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes > 0 ? bytes : 1);
    if (memory == NULL) {
        fail("out of memory");
    }
    return memory;
}

static void buffer_reserve(struct buffer *buffer, size_t room)
{
    size_t needed = buffer->length + room;
    if (needed <= buffer->capacity) {
        return;
    }
    size_t capacity = buffer->capacity * 2;
    if (capacity < needed) {
        capacity = needed;
    }
    buffer->data = realloc(buffer->data, capacity);
    if (buffer->data == NULL) {
        fail("out of memory");
    }
    buffer->capacity = capacity;
}

static void buffer_append(struct buffer *buffer, const char *data, size_t length)
{
    buffer_reserve(buffer, length);
    memcpy(buffer->data + buffer->length, data, length);
    buffer->length += length;
}

static void buffer_drop_front(struct buffer *buffer, size_t length)
{
    memmove(buffer->data, buffer->data + length, buffer->length - length);
    buffer->length -= length;
}

/* ---------------------------------------------------------------- counting -------------------------- */

static void count_miss(long jobs)
{
    totals.misses += jobs;
}

/* The text may hold anything a server sent; what would break JSON or a terminal becomes a dot. */
static void count_error(const char *format, ...)
{
    totals.errors++;
    if (totals.errors > 1) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(totals.first_error, sizeof totals.first_error, format, arguments);
    va_end(arguments);
    for (char *c = totals.first_error; *c != '\0'; c++) {
        if (!isprint((unsigned char)*c) || *c == '"' || *c == '\\') {
            *c = '.';
        }
    }
}

static void remember_latency(int64_t ns)
{
    if (latencies_count == latencies_capacity) {
        latencies_capacity = latencies_capacity == 0 ? 4096 : latencies_capacity * 2;
        latencies_us = realloc(latencies_us, latencies_capacity * sizeof *latencies_us);
        if (latencies_us == NULL) {
            fail("out of memory");
        }
    }
    latencies_us[latencies_count] = (uint32_t)(ns / 1000);
    latencies_count++;
}

/* ---------------------------------------------------------------- the server's CPU clock ------------ */

static void add_thread_clock(const char *thread, struct cpu_clock *clock)
{
    char path[300];
    snprintf(path, sizeof path, "/proc/%ld/task/%s/schedstat", options.server_pid, thread);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return;                       /* the thread ended between readdir() and here */
    }
    long long ran;
    long long waited;
    if (fscanf(file, "%lld %lld", &ran, &waited) == 2) {
        clock->ran_ns += ran;
        clock->waited_ns += waited;
    }
    fclose(file);
}

static struct cpu_clock read_server_clock(void)
{
    struct cpu_clock clock = {0, 0};
    if (options.server_pid == 0) {
        return clock;
    }
    usleep(SETTLE_US);
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/task", options.server_pid);
    DIR *directory = opendir(path);
    if (directory == NULL) {
        fail("no process %ld to read the CPU clock of", options.server_pid);
    }
    struct dirent *entry;
    while ((entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] != '.') {
            add_thread_clock(entry->d_name, &clock);
        }
    }
    closedir(directory);
    return clock;
}

/* ---------------------------------------------------------------- the result ------------------------ */

static int compare_latencies(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left;
    uint32_t b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static uint32_t percentile_us(double share)
{
    if (latencies_count == 0) {
        return 0;
    }
    size_t index = (size_t)((double)latencies_count * share);
    if (index >= latencies_count) {
        index = latencies_count - 1;
    }
    return latencies_us[index];
}

/* `stopped` says why the run ended early; NULL when it did not. */
static void print_result(const char *stopped)
{
    double rate = totals.seconds > 0 ? (double)totals.ops / totals.seconds : 0;
    if (latencies_count > 0) {
        qsort(latencies_us, latencies_count, sizeof *latencies_us, compare_latencies);
    }
    printf("{\"mode\": \"%s\", ", options.mode->name);
    printf("\"connections\": %ld, \"pipeline\": %ld, ", options.connections, options.pipeline);
    printf("\"ops\": %ld, \"commands\": %ld, ", totals.ops, totals.commands);
    printf("\"seconds\": %.6f, \"rate\": %.1f, ", totals.seconds, rate);
    printf("\"misses\": %ld, \"errors\": %ld, ", totals.misses, totals.errors);
    if (totals.errors > 0) {
        printf("\"first_error\": \"%s\", ", totals.first_error);
    } else {
        printf("\"first_error\": null, ");
    }
    if (stopped != NULL) {
        printf("\"stopped\": \"%s\", ", stopped);
    } else {
        printf("\"stopped\": null, ");
    }
    if (options.server_pid != 0 && stopped == NULL) {
        printf("\"server_cpu_us\": %.1f, ", (double)(clock_after.ran_ns - clock_before.ran_ns) / 1000);
        printf("\"server_wait_us\": %.1f, ", (double)(clock_after.waited_ns - clock_before.waited_ns) / 1000);
    } else {
        printf("\"server_cpu_us\": null, \"server_wait_us\": null, ");
    }
    printf("\"batch_latency_us\": {\"p50\": %u, \"p99\": %u, \"p999\": %u, \"max\": %u}}\n",
           percentile_us(0.50), percentile_us(0.99), percentile_us(0.999), percentile_us(1.0));
    fflush(stdout);
}

static void stop_early(enum exit_code code, const char *why)
{
    fprintf(stderr, "loadgen: %s after %ld replies\n", why, totals.commands);
    print_result(why);
    exit(code);
}

/* ---------------------------------------------------------------- requests -------------------------- */

static void append_array(struct buffer *buffer, int length)
{
    char line[32];
    int bytes = snprintf(line, sizeof line, "*%d\r\n", length);
    buffer_append(buffer, line, (size_t)bytes);
}

static void append_bulk(struct buffer *buffer, const char *text, size_t length)
{
    char line[32];
    int bytes = snprintf(line, sizeof line, "$%zu\r\n", length);
    buffer_append(buffer, line, (size_t)bytes);
    buffer_append(buffer, text, length);
    buffer_append(buffer, "\r\n", 2);
}

static void append_word(struct buffer *buffer, const char *word)
{
    append_bulk(buffer, word, strlen(word));
}

static void append_body(enum command command)
{
    struct buffer *buffer = &templates[command];
    append_bulk(buffer, body.data, body.length);
    serial_offset[command] = buffer->length - 2 - body.length;
}

/* Letters after the serial number: redis stores a text of digits as an integer, which would flatter it. */
static void make_body(void)
{
    body.length = 0;
    buffer_reserve(&body, (size_t)options.body_bytes + 1);
    for (long i = 0; i < options.body_bytes; i++) {
        body.data[i] = (char)('a' + i % 26);
    }
    body.length = (size_t)options.body_bytes;
}

static void make_addjob_template(void)
{
    char *words[ADD_OPTION_WORDS_MAX];
    int count = 0;
    char *copy = strdup(options.add_options);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) {
        if (count == ADD_OPTION_WORDS_MAX) {
            fail("--add-options: too many words");
        }
        words[count] = word;
        count++;
    }
    char timeout[24];
    snprintf(timeout, sizeof timeout, "%ld", options.add_timeout_ms);

    struct buffer *request = &templates[ADDJOB];
    append_array(request, 4 + count);
    append_word(request, "ADDJOB");
    append_word(request, options.queue);
    append_body(ADDJOB);
    append_word(request, timeout);
    for (int i = 0; i < count; i++) {
        if (strcmp(words[i], "#") == 0) {
            char key[SERIAL_BYTES] = {0};
            append_bulk(request, key, sizeof key);
            key_offset = request->length - 2 - sizeof key;
        } else {
            append_word(request, words[i]);
        }
    }
    free(copy);
}

/* Of ACKJOB only the part before the ids is the same every time. */
static void make_ackjob_head(struct buffer *buffer, long id_count)
{
    append_array(buffer, (int)id_count + 1);
    append_word(buffer, "ACKJOB");
}

static void make_templates(void)
{
    make_body();
    append_array(&templates[PING], 1);
    append_word(&templates[PING], "PING");

    append_array(&templates[LPUSH], 3);
    append_word(&templates[LPUSH], "LPUSH");
    append_word(&templates[LPUSH], options.queue);
    append_body(LPUSH);

    append_array(&templates[RPOP], 2);
    append_word(&templates[RPOP], "RPOP");
    append_word(&templates[RPOP], options.queue);

    make_addjob_template();

    append_array(&templates[GETJOB], 4);
    append_word(&templates[GETJOB], "GETJOB");
    append_word(&templates[GETJOB], "NOHANG");
    append_word(&templates[GETJOB], "FROM");
    append_word(&templates[GETJOB], options.queue);

    make_ackjob_head(&templates[ACKJOB], options.ids_per_ack);
}

/* Hexadecimal in a body; a key is decimal, so that it may stand where a command wants a number. */
static void write_serial(char *at, long serial, int base)
{
    static const char digits[] = "0123456789abcdef";
    for (int i = SERIAL_BYTES - 1; i >= 0; i--) {
        at[i] = digits[serial % base];
        serial /= base;
    }
}

static void append_request(struct connection *c, enum command command)
{
    size_t start = c->out.length;
    buffer_append(&c->out, templates[command].data, templates[command].length);
    bool has_body = command == ADDJOB || command == LPUSH;
    if (has_body && options.body_bytes >= SERIAL_BYTES) {
        write_serial(c->out.data + start + serial_offset[command], serials_used, 16);
        if (command == ADDJOB && key_offset > 0) {
            long key = options.keys > 0 ? serials_used % options.keys : serials_used;
            write_serial(c->out.data + start + key_offset, key, 10);
        }
        serials_used++;
    }
}

/* One ACKJOB. No formatting for the usual number of ids: the generator must be quicker than the server. */
static void append_ackjob(struct connection *c, const char *first_id, long count)
{
    static const char id_head[] = "$48\r\n";
    if (count == options.ids_per_ack) {
        buffer_append(&c->out, templates[ACKJOB].data, templates[ACKJOB].length);
    } else {
        make_ackjob_head(&c->out, count);
    }
    for (long i = 0; i < count; i++) {
        buffer_append(&c->out, id_head, sizeof id_head - 1);
        buffer_append(&c->out, first_id + i * ID_BYTES, ID_BYTES);
        buffer_append(&c->out, "\r\n", 2);
    }
}

/* ---------------------------------------------------------------- replies: bytes to tokens ---------- */

/* A reply is read as a flat list of tokens: `*1 *3 $queue $id $body` is five. */
struct token {
    char type;                        /* + - : $ * as on the wire */
    int64_t number;                   /* integer, or announced length; -1 is null */
    const char *text;                 /* of + - $ */
    size_t length;
};

struct reply {
    struct token tokens[TOKENS_KEPT_MAX];
    int count;                        /* may exceed what is kept */
    size_t bytes;
};

enum progress { WHOLE, INCOMPLETE, BROKEN };

static bool parse_number(const char *text, size_t length, int64_t *number)
{
    bool negative = length > 0 && text[0] == '-';
    size_t i = negative ? 1 : 0;
    if (i == length || length > 20) {
        return false;
    }
    int64_t value = 0;
    for (; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        value = value * 10 + (text[i] - '0');
    }
    *number = negative ? -value : value;
    return true;
}

/* Reads one token at `*position`, and moves it behind the token. */
static enum progress read_token(const struct buffer *in, size_t *position, struct token *token)
{
    const char *start = in->data + *position;
    const char *newline = memchr(start, '\n', in->length - *position);
    if (newline == NULL) {
        return INCOMPLETE;
    }
    size_t line_length = (size_t)(newline - start);
    if (line_length < 2 || newline[-1] != '\r') {
        return BROKEN;
    }
    token->type = start[0];
    token->text = start + 1;
    token->length = line_length - 2;
    token->number = 0;
    *position += line_length + 1;

    if (token->type == '+' || token->type == '-') {
        return WHOLE;
    }
    if (!parse_number(token->text, token->length, &token->number)) {
        return BROKEN;
    }
    if (token->type == ':' || token->type == '*') {
        return WHOLE;
    }
    if (token->type != '$') {
        return BROKEN;
    }
    token->text = in->data + *position;
    token->length = token->number > 0 ? (size_t)token->number : 0;
    if (token->number < 0) {
        return WHOLE;
    }
    if (in->length - *position < token->length + 2) {
        return INCOMPLETE;
    }
    *position += token->length + 2;
    return WHOLE;
}

static enum progress read_reply(const struct buffer *in, size_t start, struct reply *reply)
{
    struct token spare;
    size_t position = start;
    int64_t awaited = 1;
    reply->count = 0;
    while (awaited > 0) {
        struct token *token = reply->count < TOKENS_KEPT_MAX ? &reply->tokens[reply->count] : &spare;
        enum progress progress = read_token(in, &position, token);
        if (progress != WHOLE) {
            return progress;
        }
        reply->count++;
        awaited--;
        if (token->type == '*' && token->number > 0) {
            awaited += token->number;
        }
    }
    reply->bytes = position - start;
    return WHOLE;
}

/* ---------------------------------------------------------------- replies: is it the right one? ----- */

static bool text_is(const struct token *token, const char *text)
{
    return token->length == strlen(text) && memcmp(token->text, text, token->length) == 0;
}

static bool is_null(const struct token *token)
{
    return (token->type == '$' && token->number < 0) || (token->type == '*' && token->number <= 0);
}

/* The value of each hex digit plus one; zero for every other character. Sixty of them are looked up per job. */
static const uint8_t HEX[256] = {
    ['0'] = 1, ['1'] = 2, ['2'] = 3, ['3'] = 4, ['4'] = 5, ['5'] = 6, ['6'] = 7, ['7'] = 8,
    ['8'] = 9, ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
};

static int hex_value(char c)
{
    return HEX[(unsigned char)c] - 1;
}

static bool is_job_id(const struct token *token)
{
    const char *text = token->text;
    if (token->length != ID_BYTES || text[0] != 'D' || text[1] != 'I' || text[46] != 'S' || text[47] != 'Q') {
        return false;
    }
    for (int i = 2; i < ID_BYTES - 2; i++) {
        if (hex_value(text[i]) < 0) {
            return false;
        }
    }
    return true;
}

static bool serial_is_new(long serial)
{
    if (serial >= options.requests) {
        count_error("%s: body number %ld is of another run", options.mode->name, serial);
        return false;
    }
    uint8_t bit = (uint8_t)(1 << (serial & 7));
    if (serials_seen[serial >> 3] & bit) {
        count_error("%s: body number %ld came twice", options.mode->name, serial);
        return false;
    }
    serials_seen[serial >> 3] |= bit;
    return true;
}

static bool body_is_right(const struct token *token)
{
    if (token->length != body.length) {
        count_error("%s: body of %zu bytes, expected %zu", options.mode->name, token->length, body.length);
        return false;
    }
    size_t numbered = body.length >= SERIAL_BYTES ? SERIAL_BYTES : 0;
    long serial = 0;
    for (size_t i = 0; i < numbered; i++) {
        int digit = hex_value(token->text[i]);
        if (digit < 0) {
            count_error("%s: body without a number: %.*s", options.mode->name, SERIAL_BYTES, token->text);
            return false;
        }
        serial = serial * 16 + digit;
    }
    if (memcmp(token->text + numbered, body.data + numbered, body.length - numbered) != 0) {
        count_error("%s: body number %ld has the wrong content", options.mode->name, serial);
        return false;
    }
    return !options.once || serial_is_new(serial);
}

static void count_unexpected(enum command command, const struct reply *reply)
{
    const struct token *first = &reply->tokens[0];
    if (first->type == '-' || first->type == '+') {
        count_error("%s: %c%.*s", COMMAND_NAMES[command], first->type, (int)first->length, first->text);
    } else {
        count_error("%s: unexpected reply of type %c, %d parts", COMMAND_NAMES[command], first->type, reply->count);
    }
}

static void check_lpush(struct connection *c, const struct reply *reply)
{
    const struct token *token = &reply->tokens[0];
    if (token->type != ':') {
        count_unexpected(LPUSH, reply);
    } else if (token->number <= c->list_length) {
        count_error("lpush: length %lld after %lld", (long long)token->number, (long long)c->list_length);
    } else {
        c->list_length = token->number;
    }
}

static void check_rpop(const struct reply *reply)
{
    const struct token *token = &reply->tokens[0];
    if (is_null(token)) {
        count_miss(1);
    } else if (token->type != '$') {
        count_unexpected(RPOP, reply);
    } else {
        body_is_right(token);
    }
}

static void keep_id(struct connection *c, const struct token *id)
{
    if (options.mode->phases > 1) {
        memcpy(c->held + c->held_count * ID_BYTES, id->text, ID_BYTES);
        c->held_count++;
    } else if (options.ids_path != NULL) {
        memcpy(ids + ids_count * ID_BYTES, id->text, ID_BYTES);
        ids_count++;
    }
}

static void check_getjob(struct connection *c, const struct reply *reply)
{
    const struct token *token = reply->tokens;
    if (is_null(&token[0])) {
        count_miss(1);
        return;
    }
    bool is_one_job = reply->count == 5 && token[0].type == '*' && token[0].number == 1
                      && token[1].type == '*' && token[1].number == 3
                      && token[2].type == '$' && token[3].type == '$' && token[4].type == '$';
    if (!is_one_job) {
        count_unexpected(GETJOB, reply);
    } else if (!text_is(&token[2], options.queue)) {
        count_error("getjob: job of queue %.*s", (int)token[2].length, token[2].text);
    } else if (!is_job_id(&token[3])) {
        count_error("getjob: not a job id: %.*s", (int)token[3].length, token[3].text);
    } else if (body_is_right(&token[4])) {
        keep_id(c, &token[3]);
    }
}

static void check_ackjob(struct connection *c, const struct reply *reply)
{
    const struct token *token = &reply->tokens[0];
    long expected = c->ids_due < options.ids_per_ack ? c->ids_due : options.ids_per_ack;
    c->ids_due -= expected;
    if (token->type != ':') {
        count_unexpected(ACKJOB, reply);
    } else if (token->number < 0 || token->number > expected) {
        count_error("ackjob: %lld acknowledged of %ld", (long long)token->number, expected);
    } else {
        count_miss(expected - (long)token->number);
    }
}

static void check_reply(struct connection *c, enum command command, const struct reply *reply)
{
    const struct token *first = &reply->tokens[0];
    switch (command) {
    case PING:
        if (first->type != '+' || !text_is(first, "PONG")) {
            count_unexpected(PING, reply);
        }
        break;
    case LPUSH:
        check_lpush(c, reply);
        break;
    case RPOP:
        check_rpop(reply);
        break;
    case ADDJOB:
        if (first->type != '+' || !is_job_id(first)) {
            count_unexpected(ADDJOB, reply);
        }
        break;
    case GETJOB:
        check_getjob(c, reply);
        break;
    case ACKJOB:
        check_ackjob(c, reply);
        break;
    case COMMANDS:
        break;
    }
}

/* ---------------------------------------------------------------- batches --------------------------- */

static bool is_last_phase(const struct connection *c)
{
    return c->phase == options.mode->phases - 1;
}

/* How many jobs the next batch of this connection is about. Zero: nothing left to do. */
static long jobs_for_next_batch(const struct connection *c)
{
    enum command command = options.mode->phase[c->phase];
    if (c->phase > 0) {
        return command == ACKJOB ? c->held_count : c->jobs_in_batch;
    }
    long jobs = options.pipeline;
    if (command == ACKJOB) {
        jobs *= options.ids_per_ack;
    }
    long left = options.requests - totals.issued;
    return jobs < left ? jobs : left;
}

/* The ids are those this connection was handed in `cycle`, otherwise the next of the file. */
static void fill_ack_batch(struct connection *c, long jobs)
{
    const char *next = options.mode->phases > 1 ? c->held : ids + ids_taken * ID_BYTES;
    c->ids_due = jobs;
    for (long left = jobs; left > 0;) {
        long count = left < options.ids_per_ack ? left : options.ids_per_ack;
        append_ackjob(c, next, count);
        next += count * ID_BYTES;
        left -= count;
        c->replies_due++;
    }
    if (options.mode->phases == 1) {
        ids_taken += jobs;
    }
}

static void fill_batch(struct connection *c, enum command command, long jobs)
{
    c->out.length = 0;
    c->out_sent = 0;
    c->replies_due = 0;
    if (command == GETJOB) {
        c->held_count = 0;
    }
    if (command == ACKJOB) {
        fill_ack_batch(c, jobs);
        return;
    }
    for (long i = 0; i < jobs; i++) {
        append_request(c, command);
    }
    c->replies_due = jobs;
}

static void watch(struct connection *c, int operation)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (c->wants_write) {
        event.events |= EPOLLOUT;
    }
    if (epoll_ctl(epoll_fd, operation, c->fd, &event) != 0) {
        fail("epoll_ctl: %s", strerror(errno));
    }
}

static void send_more(struct connection *c)
{
    while (c->out_sent < c->out.length) {
        ssize_t sent = send(c->fd, c->out.data + c->out_sent, c->out.length - c->out_sent, MSG_NOSIGNAL);
        if (sent >= 0) {
            c->out_sent += (size_t)sent;
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            stop_early(EXIT_LOST, "connection lost while sending");
        }
    }
    bool wants_write = c->out_sent < c->out.length;
    if (wants_write != c->wants_write) {
        c->wants_write = wants_write;
        watch(c, EPOLL_CTL_MOD);
    }
}

/* Returns false when this connection has nothing left to do. */
static bool begin_batch(struct connection *c)
{
    long jobs = jobs_for_next_batch(c);
    if (jobs == 0 && c->phase > 0) {
        c->phase = 0;                 /* every GETJOB of the batch missed: nothing to acknowledge */
        jobs = jobs_for_next_batch(c);
    }
    if (jobs <= 0) {
        return false;
    }
    if (c->phase == 0) {
        totals.issued += jobs;
    }
    c->jobs_in_batch = jobs;
    fill_batch(c, options.mode->phase[c->phase], jobs);
    c->sent_at_ns = now_ns();
    send_more(c);
    return true;
}

static void end_batch(struct connection *c)
{
    remember_latency(now_ns() - c->sent_at_ns);
    if (is_last_phase(c)) {
        totals.ops += c->jobs_in_batch;
    }
    c->phase = (c->phase + 1) % options.mode->phases;
}

static void receive(struct connection *c)
{
    buffer_reserve(&c->in, READ_BYTES);
    ssize_t received = recv(c->fd, c->in.data + c->in.length, c->in.capacity - c->in.length, 0);
    if (received > 0) {
        c->in.length += (size_t)received;
    } else if (received == 0) {
        stop_early(EXIT_LOST, "connection closed by the server");
    } else if (errno != EAGAIN && errno != EINTR) {
        stop_early(EXIT_LOST, "connection lost while receiving");
    }
}

static void read_replies(struct connection *c)
{
    enum command command = options.mode->phase[c->phase];
    size_t position = 0;
    while (c->replies_due > 0 && position < c->in.length) {
        struct reply reply;
        enum progress progress = read_reply(&c->in, position, &reply);
        if (progress == INCOMPLETE) {
            break;
        }
        if (progress == BROKEN) {
            stop_early(EXIT_LOST, "a reply is not RESP");
        }
        check_reply(c, command, &reply);
        position += reply.bytes;
        totals.commands++;
        c->replies_due--;
    }
    buffer_drop_front(&c->in, position);
    if (c->replies_due == 0 && c->in.length > 0) {
        stop_early(EXIT_LOST, "more replies than requests");
    }
}

/* ---------------------------------------------------------------- connections ----------------------- */

static int connect_tcp(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port)};
    if (inet_pton(AF_INET, options.host, &address.sin_addr) != 1) {
        fail("--host must be an IPv4 address, not %s", options.host);
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        fail("cannot connect to %s:%d: %s", options.host, options.port, strerror(errno));
    }
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static int connect_unix(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(options.unix_path) >= sizeof address.sun_path) {
        fail("--unix: path too long");
    }
    strcpy(address.sun_path, options.unix_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        fail("cannot connect to %s: %s", options.unix_path, strerror(errno));
    }
    return fd;
}

/* A PING answered means accepted: no accept() is left to be counted as work of the run. */
static void greet(int fd)
{
    struct timeval patience = {.tv_sec = options.stall_ms / 1000, .tv_usec = options.stall_ms % 1000 * 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    char answer[7];
    ssize_t sent = send(fd, templates[PING].data, templates[PING].length, MSG_NOSIGNAL);
    ssize_t received = recv(fd, answer, sizeof answer, MSG_WAITALL);
    if (sent < 0 || received != sizeof answer || memcmp(answer, "+PONG\r\n", sizeof answer) != 0) {
        fail("the server does not answer PING");
    }
}

static void open_connections(void)
{
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    connections = allocate((size_t)options.connections * sizeof *connections);
    for (long i = 0; i < options.connections; i++) {
        struct connection *c = &connections[i];
        c->fd = options.unix_path != NULL ? connect_unix() : connect_tcp();
        greet(c->fd);
        fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK);
        c->held = allocate((size_t)options.pipeline * ID_BYTES);
        watch(c, EPOLL_CTL_ADD);
    }
}

/* ---------------------------------------------------------------- the run --------------------------- */

/* Returns false when the connection became idle for good. */
static bool handle_event(const struct epoll_event *event)
{
    struct connection *c = event->data.ptr;
    if (event->events & EPOLLOUT) {
        send_more(c);
    }
    if ((event->events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) {
        return true;
    }
    receive(c);
    read_replies(c);
    if (c->replies_due > 0) {
        return true;
    }
    end_batch(c);
    return begin_batch(c);
}

static void run(void)
{
    static struct epoll_event events[EVENTS_MAX];
    long active = 0;
    int64_t started_ns = now_ns();
    for (long i = 0; i < options.connections; i++) {
        if (begin_batch(&connections[i])) {
            active++;
        }
    }
    while (active > 0) {
        int ready = epoll_wait(epoll_fd, events, EVENTS_MAX, (int)options.stall_ms);
        if (ready < 0 && errno != EINTR) {
            fail("epoll_wait: %s", strerror(errno));
        }
        if (ready == 0) {
            totals.seconds = (double)(now_ns() - started_ns) / 1e9;
            stop_early(EXIT_STALLED, "stalled, no reply");
        }
        for (int i = 0; i < ready; i++) {
            if (!handle_event(&events[i])) {
                active--;
            }
        }
    }
    totals.seconds = (double)(now_ns() - started_ns) / 1e9;
}

/* ---------------------------------------------------------------- the file of ids ------------------- */

static void read_ids(void)
{
    FILE *file = fopen(options.ids_path, "r");
    if (file == NULL) {
        fail("cannot read %s: %s", options.ids_path, strerror(errno));
    }
    char line[ID_BYTES + 16];
    while (ids_count < options.requests && fgets(line, sizeof line, file) != NULL) {
        struct token id = {.text = line, .length = strcspn(line, "\n")};
        if (!is_job_id(&id)) {
            fail("%s: line %ld is not a job id", options.ids_path, ids_count + 1);
        }
        memcpy(ids + ids_count * ID_BYTES, line, ID_BYTES);
        ids_count++;
    }
    fclose(file);
    if (ids_count < options.requests) {
        fail("%s has %ld ids, --requests asks for %ld", options.ids_path, ids_count, options.requests);
    }
}

static void write_ids(void)
{
    FILE *file = fopen(options.ids_path, "w");
    if (file == NULL) {
        fail("cannot write %s: %s", options.ids_path, strerror(errno));
    }
    for (long i = 0; i < ids_count; i++) {
        fprintf(file, "%.*s\n", ID_BYTES, ids + i * ID_BYTES);
    }
    if (fclose(file) != 0) {
        fail("cannot write %s: %s", options.ids_path, strerror(errno));
    }
}

/* ---------------------------------------------------------------- the command line ------------------ */

static const char HELP[] =
    "usage: loadgen --mode MODE (--port N | --unix PATH) [options]\n"
    "  --mode MODE            ping, lpush, rpop, addjob, getjob, ackjob, cycle\n"
    "  --host ADDRESS         IPv4 address (127.0.0.1)\n"
    "  --port N               TCP port\n"
    "  --unix PATH            Unix socket, in place of host and port\n"
    "  --connections N        open at the same time (50)\n"
    "  --pipeline N           commands sent before their replies are awaited (1)\n"
    "  --requests N           jobs in all (100000)\n"
    "  --body-bytes N         size of a body (64)\n"
    "  --queue NAME           queue, or list key (q)\n"
    "  --ids FILE             written by getjob, read by ackjob\n"
    "  --ids-per-ack N        ids in one ACKJOB (1)\n"
    "  --add-timeout-ms N     ADDJOB's timeout (0)\n"
    "  --add-options WORDS    further words of ADDJOB, e.g. \"REPLICATE 3 RETRY 10\"; # is a number of its own\n"
    "  --keys N               ... of only so many different ones\n"
    "  --once                 a body that comes twice is an error; the queue must hold one run's bodies only\n"
    "  --server-pid PID       also report the CPU time this process spent on the run\n"
    "  --stall-ms N           no reply for so long ends the run (10000)\n";

static long number_between(const char *name, const char *text, long low, long high)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || *text == '\0' || *end != '\0' || value < low || value > high) {
        fail("--%s must be a number from %ld to %ld, not %s", name, low, high, text);
    }
    return value;
}

static const struct mode *mode_named(const char *name)
{
    for (size_t i = 0; i < sizeof MODES / sizeof MODES[0]; i++) {
        if (strcmp(MODES[i].name, name) == 0) {
            return &MODES[i];
        }
    }
    fail("unknown mode %s", name);
    return NULL;
}

static const struct option LONG_OPTIONS[] = {
    {"mode", required_argument, NULL, 'm'},
    {"host", required_argument, NULL, 'h'},
    {"port", required_argument, NULL, 'p'},
    {"unix", required_argument, NULL, 'u'},
    {"connections", required_argument, NULL, 'c'},
    {"pipeline", required_argument, NULL, 'P'},
    {"requests", required_argument, NULL, 'n'},
    {"body-bytes", required_argument, NULL, 'b'},
    {"queue", required_argument, NULL, 'q'},
    {"ids", required_argument, NULL, 'i'},
    {"ids-per-ack", required_argument, NULL, 'k'},
    {"add-timeout-ms", required_argument, NULL, 't'},
    {"add-options", required_argument, NULL, 'a'},
    {"keys", required_argument, NULL, 'K'},
    {"once", no_argument, NULL, 'o'},
    {"server-pid", required_argument, NULL, 's'},
    {"stall-ms", required_argument, NULL, 'S'},
    {"help", no_argument, NULL, '?'},
    {NULL, 0, NULL, 0},
};

static void take_option(int letter, const char *text)
{
    switch (letter) {
    case 'm':
        options.mode = mode_named(text);
        break;
    case 'h':
        options.host = text;
        break;
    case 'p':
        options.port = (int)number_between("port", text, 1, 65535);
        break;
    case 'u':
        options.unix_path = text;
        break;
    case 'c':
        options.connections = number_between("connections", text, 1, CONNECTIONS_MAX);
        break;
    case 'P':
        options.pipeline = number_between("pipeline", text, 1, PIPELINE_MAX);
        break;
    case 'n':
        options.requests = number_between("requests", text, 1, UINT32_MAX);
        break;
    case 'b':
        options.body_bytes = number_between("body-bytes", text, 0, BODY_BYTES_MAX);
        break;
    case 'q':
        options.queue = text;
        break;
    case 'i':
        options.ids_path = text;
        break;
    case 'k':
        options.ids_per_ack = number_between("ids-per-ack", text, 1, IDS_PER_ACK_MAX);
        break;
    case 't':
        options.add_timeout_ms = number_between("add-timeout-ms", text, 0, INT32_MAX);
        break;
    case 'a':
        options.add_options = text;
        break;
    case 'K':
        options.keys = number_between("keys", text, 0, INT32_MAX);
        break;
    case 'o':
        options.once = true;
        break;
    case 's':
        options.server_pid = number_between("server-pid", text, 1, INT32_MAX);
        break;
    case 'S':
        options.stall_ms = number_between("stall-ms", text, 1, 600 * 1000);
        break;
    default:
        fputs(HELP, stderr);
        exit(EXIT_USAGE);
    }
}

static void read_command_line(int count, char **words)
{
    int letter;
    while ((letter = getopt_long(count, words, "", LONG_OPTIONS, NULL)) != -1) {
        take_option(letter, optarg);
    }
    bool has_address = options.port != 0 || options.unix_path != NULL;
    if (optind < count || options.mode == NULL || !has_address) {
        fputs(HELP, stderr);
        exit(EXIT_USAGE);
    }
    if (options.mode->phase[0] == ACKJOB && options.ids_path == NULL) {
        fail("ackjob needs --ids FILE, as written by a getjob run");
    }
    if (options.once && options.body_bytes < SERIAL_BYTES) {
        fail("--once needs bodies of at least %d bytes", SERIAL_BYTES);
    }
}

static void prepare(void)
{
    make_templates();
    if (options.ids_path != NULL) {
        ids = allocate((size_t)options.requests * ID_BYTES);
    }
    if (options.mode->phase[0] == ACKJOB) {
        read_ids();
    }
    if (options.once) {
        serials_seen = allocate((size_t)options.requests / 8 + 1);
    }
    open_connections();
}

int main(int count, char **words)
{
    read_command_line(count, words);
    prepare();
    clock_before = read_server_clock();
    run();
    clock_after = read_server_clock();
    if (options.mode->phase[0] == GETJOB && options.ids_path != NULL) {
        write_ids();
    }
    print_result(NULL);
    return totals.misses == 0 && totals.errors == 0 ? EXIT_FINE : EXIT_WRONG;
}
