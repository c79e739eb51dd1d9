// SPDX-License-Identifier: Apache-2.0
// How long `kvern gc` takes on a folder of many small objects, and how much memory: ./run bench gc.
//
// Makes a folder of --objects files whose keys are those of prompts of 20 chunks, each used at another time, and runs
// the real command on it: once to see what would go, once to remove half of it, once to remove the rest but one page.
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "base/text.h"
#include "cache/key.h"

extern char** environ;

namespace kvern {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t chunks_of_prompt = 20;

struct Options {
    std::string kvern;
    std::string folder = "/tmp";
    std::uint64_t objects = 200'000;
};

[[noreturn]] void die(const std::string& why) {
    fprintf(stderr, "bench gc: %s\n", why.c_str());
    exit(1);
}

ChunkHash hash_of(std::uint64_t number) {
    const auto digest = sha256(std::to_string(number));
    return ChunkHash(std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

void make_object(const std::string& path, std::uint64_t number, std::time_t now) {
    const int fd = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    const timespec times[2] = {
        {0, UTIME_OMIT}, {now - 3600 - static_cast<std::time_t>(number), 1 + static_cast<long>(number % 999'999'999)}};
    if (fd < 0 || write(fd, "x", 1) != 1 || futimens(fd, times) != 0) die(path + ": " + std::strerror(errno));
    close(fd);
}

void make_objects(const std::string& root, std::uint64_t count) {
    const std::string space = to_hex(std::string(32, '\x5a'));
    const Shard shard{0, 31, 0, 7};
    char fan_out[3];
    for (unsigned i = 0; i < 256; ++i) {
        snprintf(fan_out, sizeof fan_out, "%02x", i);
        fs::create_directories(root + "/" + space + "/" + fan_out);
    }
    const auto now = time(nullptr);
    for (std::uint64_t i = 0; i < count; ++i) {
        const auto parent = i % chunks_of_prompt == 0 ? 0 : hash_of(i - 1).tag();
        make_object(root + "/" + object_key(space, {hash_of(i), parent}, 0, shard.text()), i, now);
    }
}

// Runs the command and prints one row.
void run(const char* what, std::vector<std::string> words) {
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    const auto start = std::chrono::steady_clock::now();
    pid_t pid = 0;
    if (const int error = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ); error != 0) {
        die(words[0] + ": " + std::strerror(error));
    }
    posix_spawn_file_actions_destroy(&actions);
    int status = 0;
    rusage usage{};
    if (wait4(pid, &status, 0, &usage) != pid || status != 0) die(words[0] + " failed");
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    printf("%-34s %8.2f s %8.2f s CPU %8.1f MiB peak\n", what, took.count(),
           static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6,
           static_cast<double>(usage.ru_maxrss) / 1024);
    fflush(stdout);
}

int bench(const Options& options) {
    std::string root = options.folder + "/kvern-bench-gc-XXXXXX";
    if (mkdtemp(root.data()) == nullptr) die(root + ": " + std::strerror(errno));
    make_objects(root, options.objects);
    const auto uri = "file://" + root;
    printf("%llu objects in %s\n", static_cast<unsigned long long>(options.objects), root.c_str());
    const auto half = std::to_string(options.objects / 2 * 4096);
    run("gc --max-bytes HALF --dry-run", {options.kvern, "gc", uri, "--max-bytes", half, "--dry-run"});
    run("gc --max-bytes HALF", {options.kvern, "gc", uri, "--max-bytes", half});
    run("gc --max-bytes 4KiB", {options.kvern, "gc", uri, "--max-bytes", "4KiB"});
    fs::remove_all(root);
    return 0;
}

}  // namespace
}  // namespace kvern

int main(int argc, char** argv) {
    kvern::Options options;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string name = argv[i];
        if (name == "--kvern") {
            options.kvern = argv[i + 1];
        } else if (name == "--folder") {
            options.folder = argv[i + 1];
        } else if (name == "--objects") {
            options.objects = std::strtoull(argv[i + 1], nullptr, 10);
        } else {
            kvern::die("unknown option '" + name + "' (known: --kvern, --folder, --objects)");
        }
    }
    if (options.kvern.empty() || options.objects < 2 || argc % 2 == 0) {
        kvern::die("usage: --kvern PATH [--folder /tmp] [--objects 200000]");
    }
    return kvern::bench(options);
}
