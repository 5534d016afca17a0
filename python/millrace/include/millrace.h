/* millrace.h: a program that stays alive and takes records one by one, for C99 and C++11. No other file is needed.
 *
 *     #include "millrace.h"
 *
 *     int main(void)
 *     {
 *         const char *record;
 *         size_t length;
 *         while (millrace_next(&record, &length))
 *             millrace_printf("%zu\n", length);
 *         return 0;
 *     }
 *
 *     cc -I"$(millrace tool include-dir)" -o prog prog.c
 *     millrace run --records --input q.fa --output lengths.txt -- ./prog
 *
 * Include it in one source file of the program. What is written after a record was given, and before the next one is
 * asked for, is the answer to it; at other times there is nothing to write to. An answer must not depend on the records
 * before. Standard output is then the same as standard error, and standard input is empty. Whatever cannot go on (memory,
 * a broken pipe, an answer to no record) ends the program with a message and exit status 71.
 *
 * The protocol: docs/records.md.
 */
#ifndef MILLRACE_H
#define MILLRACE_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

struct millrace_buffer {
    char *bytes;
    size_t start, end, room;
};

static struct {
    int is_open, from, to, is_asked;
    unsigned long long number;
    struct millrace_buffer received, answer, answers;
} millrace_link_;

static inline void millrace_fail_(const char *what)
{
    fprintf(stderr, "millrace.h: %s: %s\n", what, errno ? strerror(errno) : "cut off");
    exit(71);
}

/* Room for so many more bytes behind what is there. */
static inline char *millrace_room_(struct millrace_buffer *buffer, size_t more)
{
    if (buffer->start > 0 && buffer->start == buffer->end)
        buffer->start = buffer->end = 0;
    if (buffer->room - buffer->end < more) {
        if (buffer->start > 0)
            memmove(buffer->bytes, buffer->bytes + buffer->start, buffer->end - buffer->start);
        buffer->end -= buffer->start;
        buffer->start = 0;
        if (buffer->room - buffer->end < more) {
            size_t room = 2 * buffer->room + more + 65536;
            char *bytes = (char *)realloc(buffer->bytes, room);
            if (!bytes)
                millrace_fail_("memory");
            buffer->bytes = bytes;
            buffer->room = room;
        }
    }
    return buffer->bytes + buffer->end;
}

static inline void millrace_add_(struct millrace_buffer *buffer, const void *bytes, size_t length)
{
    if (length)
        memcpy(millrace_room_(buffer, length), bytes, length);
    buffer->end += length;
}

/* Whoever waits for answers has them before this program waits for records. */
static inline void millrace_flush_(void)
{
    struct millrace_buffer *answers = &millrace_link_.answers;
    while (answers->start < answers->end) {
        ssize_t n = write(millrace_link_.to, answers->bytes + answers->start, answers->end - answers->start);
        if (n < 0 && errno != EINTR)
            millrace_fail_("writing an answer");
        if (n > 0)
            answers->start += (size_t)n;
    }
    answers->start = answers->end = 0;
}

/* Reads on; 0 at the end. */
static inline int millrace_more_(void)
{
    struct millrace_buffer *received = &millrace_link_.received;
    ssize_t n;
    millrace_flush_();
    do
        n = read(millrace_link_.from, millrace_room_(received, 65536), 65536);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        millrace_fail_("reading a record");
    received->end += (size_t)n;
    return n > 0;
}

static inline void millrace_open_(void)
{
    int null;
    if (!getenv("MILLRACE_RECORDS")) {
        fprintf(stderr, "millrace.h: this program is not run by millrace\n\n"
                        "hint: start it by: millrace run --records --input FILE -- PROGRAM\n");
        exit(64);
    }
    null = open("/dev/null", O_RDONLY);
    millrace_link_.from = dup(0);
    millrace_link_.to = dup(1);
    if (null < 0 || millrace_link_.from < 0 || millrace_link_.to < 0 || dup2(null, 0) < 0 || dup2(2, 1) < 0)
        millrace_fail_("standard input and output");
    close(null);
    millrace_link_.is_open = 1;
}

/* The answer to the last record is complete. */
static inline void millrace_answer_(void)
{
    char head[48];
    struct millrace_buffer *answer = &millrace_link_.answer;
    int n = snprintf(head, sizeof head, "%llu %llu\n", millrace_link_.number,
                     (unsigned long long)(answer->end - answer->start));
    millrace_add_(&millrace_link_.answers, head, (size_t)n);
    millrace_add_(&millrace_link_.answers, answer->bytes, answer->end);
    millrace_add_(&millrace_link_.answers, "\n", 1);
    answer->start = answer->end = 0;
    millrace_link_.is_asked = 0;
    if (millrace_link_.answers.end >= 65536)
        millrace_flush_();
}

/* The next record: 1, and where it is until the next call; no NUL ends it. 0: there are no more. */
static inline int millrace_next(const char **record, size_t *length)
{
    struct millrace_buffer *received = &millrace_link_.received;
    char *end;
    size_t size;
    if (!millrace_link_.is_open)
        millrace_open_();
    if (millrace_link_.is_asked)
        millrace_answer_();
    for (;;) {
        size = received->end - received->start;
        end = size ? (char *)memchr(received->bytes + received->start, '\n', size) : NULL;
        if (end)
            break;
        if (!millrace_more_())
            return 0;
    }
    millrace_link_.number = strtoull(received->bytes + received->start, &end, 10);
    size = (size_t)strtoull(end, &end, 10);
    received->start = (size_t)(end + 1 - received->bytes);
    while (received->end - received->start < size + 1) {
        errno = 0;
        if (!millrace_more_())
            millrace_fail_("reading a record");
    }
    *record = received->bytes + received->start;
    *length = size;
    received->start += size + 1;
    millrace_link_.is_asked = 1;
    return 1;
}

/* What answers no record would be lost. */
static inline void millrace_check_(void)
{
    if (!millrace_link_.is_asked) {
        fprintf(stderr, "millrace.h: there is no record to answer: write between one millrace_next and the following\n");
        exit(71);
    }
}

/* Adds to the answer to the record that was given last. */
static inline void millrace_write(const void *bytes, size_t length)
{
    millrace_check_();
    millrace_add_(&millrace_link_.answer, bytes, length);
}

/* The same, as printf does it. */
static inline void millrace_printf(const char *format, ...)
{
    va_list arguments, again;
    int length;
    millrace_check_();
    va_start(arguments, format);
    va_copy(again, arguments);
    length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0)
        millrace_fail_("formatting an answer");
    vsnprintf(millrace_room_(&millrace_link_.answer, (size_t)length + 1), (size_t)length + 1, format, again);
    millrace_link_.answer.end += (size_t)length;
    va_end(again);
}

/* The process `millrace data best-path --serve` that answers this one. */
static struct {
    int socket;
    pid_t child, parent;
} millrace_paths_;

static inline void millrace_close_paths_(void)
{
    int status;
    close(millrace_paths_.socket);
    if (millrace_paths_.parent == getpid())
        while (waitpid(millrace_paths_.child, &status, 0) < 0 && errno == EINTR)
            ;
    millrace_paths_.parent = 0;
}

static inline int millrace_open_paths_(void)
{
    int ends[2];
    if (millrace_paths_.parent == getpid())
        return 1;
    if (millrace_paths_.parent != 0)
        millrace_close_paths_(); /* it answers the process from which this one was forked */
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        return 0;
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    millrace_paths_.child = fork();
    if (millrace_paths_.child == 0) {
        if (dup2(ends[1], 0) >= 0 && dup2(ends[1], 1) >= 0)
            execlp("millrace", "millrace", "data", "best-path", "--serve", (char *)NULL);
        perror("millrace.h: millrace");
        _exit(127);
    }
    close(ends[1]);
    millrace_paths_.socket = ends[0];
    millrace_paths_.parent = getpid();
    if (millrace_paths_.child > 0)
        return 1;
    close(ends[0]);
    millrace_paths_.parent = 0;
    return 0;
}

static inline int millrace_send_all_(const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t n = send(millrace_paths_.socket, bytes, length, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return 0;
        bytes += n > 0 ? n : 0;
        length -= n > 0 ? (size_t)n : 0;
    }
    return 1;
}

/* Ask, and fill `said` with the answer and its null; 0: the process that answers has ended. */
static inline int millrace_ask_once_(const char *numbers, const char *name, struct millrace_buffer *said)
{
    ssize_t n;
    if (!millrace_send_all_(numbers, strlen(numbers)) || !millrace_send_all_(name, strlen(name) + 1))
        return 0;
    while (said->end == 0 || said->bytes[said->end - 1] != '\0') {
        n = recv(millrace_paths_.socket, millrace_room_(said, 4096), 4096, 0);
        if (n > 0)
            said->end += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return 0;
    }
    return 1;
}

static inline char *millrace_ask_path_(const char *name, int readers, int reads, int replicate)
{
    struct millrace_buffer said = {NULL, 0, 0, 0};
    char numbers[64];
    int tries = millrace_paths_.parent == getpid() ? 2 : 1; /* one that was killed since the last call is replaced */
    snprintf(numbers, sizeof numbers, "%d %d %d ", readers, reads, replicate);
    while (tries-- > 0 && millrace_open_paths_()) {
        said.end = 0;
        if (millrace_ask_once_(numbers, name, &said)) {
            if (said.end > 1)
                return said.bytes;
            break;
        }
        millrace_close_paths_();
    }
    free(said.bytes);
    return NULL;
}

/* The path or URL from which a file is read at the least cost, as `millrace data best-path` says it; free() it. NULL: no
 * place has the file, or there is no command `millrace`, which standard error says. `readers` are those who read it at the
 * same time, on all nodes. It may be called in any program, also before the first record. The first call starts a process
 * that answers this and all later ones, and ends with the program; calls of several threads must not overlap. */
static inline char *millrace_best_path(const char *name, int readers)
{
    return millrace_ask_path_(name, readers, 1, 0);
}

/* The same for a file that this node will read `reads` times. It is copied to this node first where that pays, or where no
 * path has it: the result is always a path. */
static inline char *millrace_replicated_path(const char *name, int readers, int reads)
{
    return millrace_ask_path_(name, readers, reads, 1);
}

#ifdef __cplusplus
#include <istream>
#include <sstream>
#include <streambuf>
#include <string>

namespace millrace {

/* What is written to it is the answer to the record that was given last. */
inline std::ostream &out()
{
    struct Answer : std::streambuf {
        int_type overflow(int_type c) override
        {
            char byte = traits_type::to_char_type(c);
            if (!traits_type::eq_int_type(c, traits_type::eof()))
                millrace_write(&byte, 1);
            return traits_type::not_eof(c);
        }
        std::streamsize xsputn(const char *bytes, std::streamsize length) override
        {
            millrace_write(bytes, static_cast<std::size_t>(length));
            return length;
        }
    };
    static Answer answer;
    static std::ostream stream(&answer);
    return stream;
}

/* The next record; false: there are no more. */
inline bool next(std::string &record)
{
    const char *bytes;
    std::size_t length;
    if (!millrace_next(&bytes, &length))
        return false;
    record.assign(bytes, length);
    return true;
}

/* The next record as a stream to read from; false: there are no more. */
inline bool next(std::istringstream &record)
{
    std::string bytes;
    if (!next(bytes))
        return false;
    record.clear();
    record.str(bytes);
    return true;
}

} // namespace millrace
#endif

#endif
