// SPDX-License-Identifier: Apache-2.0
// The only file that knows spdlog: its headers cost seconds of compile time.
#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "base/text.h"

namespace kvern {
namespace {

constexpr std::array<std::string_view, 4> level_names{"debug", "info", "warning", "error"};

std::optional<LogLevel> level_from(std::string_view name) {
    for (std::size_t i = 0; i < level_names.size(); ++i) {
        if (level_names[i] == name) return static_cast<LogLevel>(i);
    }
    return std::nullopt;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
    switch (level) {
        case LogLevel::debug:
            return spdlog::level::debug;
        case LogLevel::info:
            return spdlog::level::info;
        case LogLevel::warning:
            return spdlog::level::warn;
        case LogLevel::error:
            return spdlog::level::err;
    }
    return spdlog::level::err;
}

// One message is one line, whatever a key, a path or a peer put into it.
std::string one_line(std::string_view message) {
    std::string line;
    line.reserve(message.size());
    for (const char c : message) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte != 0x7f) {
            line += c;
        } else {
            line += "\\x" + to_hex(std::string_view(&c, 1));
        }
    }
    return line;
}

std::shared_ptr<spdlog::logger> make_logger() {
    auto logger = std::make_shared<spdlog::logger>("kvern", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
    const char* const wanted = std::getenv("KVERN_LOG");
    const std::string_view name = wanted == nullptr ? "warning" : wanted;
    const auto level = level_from(name);
    logger->set_level(to_spdlog(level.value_or(LogLevel::warning)));
    if (!level) {
        logger->warn("log: {}", one_line("KVERN_LOG='" + std::string(name) + "' is no level" +
                                         suggestion(name, level_names) + "; using warning"));
    }
    return logger;
}

spdlog::logger& logger() {
    // Leaked on purpose: a thread that ends after main() may still log.
    static const auto* const instance = new std::shared_ptr<spdlog::logger>(make_logger());
    return **instance;
}

}  // namespace

void log(LogLevel level, std::string_view component, std::string_view message) {
    if (!log_enabled(level)) return;
    logger().log(to_spdlog(level), "{}: {}", component, one_line(message));
}

bool log_enabled(LogLevel level) {
    return logger().should_log(to_spdlog(level));
}

}  // namespace kvern
