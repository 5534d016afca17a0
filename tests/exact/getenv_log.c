/* Writes each environment variable that a program asks for into the file named by GETENV_LOG. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static char *find_value(const char *name) {
    size_t length = strlen(name);
    for (char **entry = environ; entry && *entry; entry++)
        if (!strncmp(*entry, name, length) && (*entry)[length] == '=') return *entry + length + 1;
    return NULL;
}

static void log_name(const char *name) {
    char line[512], *log = find_value("GETENV_LOG");
    int file = log ? open(log, O_WRONLY | O_APPEND | O_CREAT, 0666) : -1;
    if (file < 0) return;
    int length = snprintf(line, sizeof line, "%s\n", name);
    if (write(file, line, length) < 0) line[0] = 0;
    close(file);
}

char *getenv(const char *name) { log_name(name); return find_value(name); }

char *secure_getenv(const char *name) { log_name(name); return find_value(name); }
