// SPDX-License-Identifier: Apache-2.0
#include "cli/fio.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

extern char** environ;

namespace kvern::cli {
namespace {

// Runs fio and returns what it printed; `error` says why there is nothing.
std::string output_of(std::vector<std::string> words, std::string& error) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        error = "no pipe for fio";
        return "";
    }
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t child = 0;
    const int spawned = posix_spawnp(&child, "fio", &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    std::string text;
    char part[4096];
    for (ssize_t got = 0; spawned == 0 && ((got = ::read(ends[0], part, sizeof part)) > 0 || errno == EINTR);) {
        if (got > 0) text.append(part, static_cast<std::size_t>(got));
        if (got == 0) break;
    }
    ::close(ends[0]);
    int status = 0;
    if (spawned == 0) {
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
    }
    if (spawned != 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) error = "fio failed";
    return text;
}

PlainResult result_from(const std::string& text) {
    PlainResult result;
    // A few remarks stand before the document.
    const auto document = nlohmann::json::parse(text.substr(std::min(text.find('{'), text.size())), nullptr, false);
    try {
        const auto& job = document.at("jobs").at(0);
        const auto& read = job.at("read");
        result.bytes = read.at("io_bytes").get<std::uint64_t>();
        result.seconds = static_cast<double>(result.bytes) / read.at("bw_bytes").get<double>();
        const double cpu_percent = job.at("usr_cpu").get<double>() + job.at("sys_cpu").get<double>();
        result.cpu_seconds = cpu_percent / 100 * job.at("job_runtime").get<double>() / 1000;
        if (result.bytes == 0) result.error = "fio read nothing";
    } catch (const nlohmann::json::exception& wrong) {
        result.error = std::string("fio's answer is not understood: ") + wrong.what();
    }
    return result;
}

}  // namespace

bool fio_installed() {
    const char* const path = std::getenv("PATH");
    std::istringstream folders(path == nullptr ? "" : path);
    for (std::string folder; std::getline(folders, folder, ':');) {
        if (access((folder + "/fio").c_str(), X_OK) == 0) return true;
    }
    return false;
}

PlainResult fio_read(const PlainJob& job, const std::string& folder) {
    const auto option = [](const char* name, std::uint64_t value) {
        return std::string(name) + "=" + std::to_string(value);
    };
    std::string error;
    const std::string text =
        output_of({"fio", "--name=kvern", "--output-format=json", "--thread", "--rw=read", "--ioengine=io_uring",
                   "--opendir=" + folder, "--file_service_type=sequential", "--invalidate=0", "--fallocate=none",
                   option("--direct", job.direct ? 1 : 0), option("--bs", job.size_bytes),
                   option("--iodepth", job.depth), option("--openfiles", job.depth),
                   option("--runtime", static_cast<std::uint64_t>(job.bound.count() / 1000 + 1))},
                  error);
    if (error.empty()) return result_from(text);
    PlainResult result;
    result.error = error;
    return result;
}

}  // namespace kvern::cli
