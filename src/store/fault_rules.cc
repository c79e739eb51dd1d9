// SPDX-License-Identifier: Apache-2.0
#include "store/fault_rules.h"

#include <fnmatch.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/text.h"
#include "kvern/limits.h"
#include "store/op_check.h"

namespace kvern {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, op_kinds> kind_names{"get",   "put",    "stat",   "remove", "list",
                                                            "begin", "append", "commit", "abort",  "space"};
constexpr std::uint32_t bit(OpKind kind) {
    return 1U << static_cast<unsigned>(kind);
}
// Not the parts of an upload: what one of them missed, the others could not make up for.
constexpr std::uint32_t all_kinds = ((1U << kind_names.size()) - 1) & ~bit(OpKind::append);

// The operations that each fault can happen to.
constexpr std::array<std::uint32_t, fault_names.size()> possible{
    all_kinds,                               // error
    all_kinds,                               // busy
    all_kinds,                               // stall
    bit(OpKind::get) | bit(OpKind::put),     // drip
    bit(OpKind::get) | bit(OpKind::put),     // cut
    bit(OpKind::get) | bit(OpKind::put),     // torn
    bit(OpKind::get) | bit(OpKind::put),     // flip
    bit(OpKind::put) | bit(OpKind::remove),  // lost
    bit(OpKind::get) | bit(OpKind::stat),    // gone
    bit(OpKind::get),                        // late
};

tl::unexpected<Error> wrong(std::string message) {
    return fail(ErrorCode::invalid_argument, std::move(message));
}

template <std::size_t n>
std::optional<std::size_t> position(std::string_view word, const std::array<std::string_view, n>& words) {
    const auto found = std::find(words.begin(), words.end(), word);
    if (found == words.end()) return std::nullopt;
    return static_cast<std::size_t>(found - words.begin());
}

// Numbers of a rule: the field's value, or nothing where it is absent.
Result<std::optional<double>> number(const json& rule, const char* field, double min, double max) {
    const auto found = rule.find(field);
    if (found == rule.end()) return std::optional<double>();
    if (!found->is_number() || found->get<double>() < min || found->get<double>() > max)
        return wrong(std::string(field) + " must be a number from " + json(min).dump() + " to " + json(max).dump());
    return std::optional<double>(found->get<double>());
}

Result<void> take_kinds(const json& document, FaultRule& rule) {
    const auto allowed = possible[static_cast<std::size_t>(rule.fault)];
    const auto found = document.find("ops");
    if (found == document.end()) {
        for (std::size_t i = 0; i < kind_names.size(); ++i) rule.kinds[i] = (allowed & 1U << i) != 0;
        return {};
    }
    if (!found->is_array()) return wrong("ops must be a list, such as [\"get\"]");
    for (const auto& entry : *found) {
        const auto name = entry.is_string() ? entry.get<std::string>() : entry.dump();
        const auto kind = position(name, kind_names);
        if (!kind) return wrong("ops: there is no operation '" + name + "'" + suggestion(name, kind_names));
        if ((allowed & 1U << *kind) == 0)
            return wrong("ops: '" + std::string(fault_names[static_cast<std::size_t>(rule.fault)]) +
                         "' can't happen to '" + name + "'");
        rule.kinds[*kind] = true;
    }
    return {};
}

Result<void> take_numbers(const json& document, FaultRule& rule, std::uint64_t& seed) {
    constexpr double count_max = 1e15;
    struct Field {
        const char* name;
        double min, max;
    };
    constexpr std::array<Field, 6> fields{Field{"probability", 0, 1},
                                          Field{"every", 1, count_max},
                                          Field{"times", 0, count_max},
                                          Field{"ms", 0, 1e9},
                                          Field{"bytes_per_second", 1, count_max},
                                          Field{"seed", 0, count_max}};
    std::array<std::optional<double>, fields.size()> values;
    for (std::size_t i = 0; i < fields.size(); ++i) {
        auto value = number(document, fields[i].name, fields[i].min, fields[i].max);
        if (!value) return tl::unexpected(value.error());
        values[i] = *value;
    }
    const auto [probability, every, times, ms, rate, own_seed] = values;
    if (probability && every) return wrong("give probability or every, not both");
    if (rule.fault == Fault::drip && !rate) return wrong("'drip' needs bytes_per_second");
    if (rule.fault != Fault::drip && rate) return wrong("bytes_per_second is for 'drip'");
    if (rule.fault == Fault::late && !ms) return wrong("'late' needs ms");
    if (rule.fault != Fault::late && rule.fault != Fault::stall && ms) return wrong("ms is for 'stall' and 'late'");
    rule.probability = probability.value_or(1);
    rule.every = static_cast<std::uint64_t>(every.value_or(1));
    if (times) rule.times = static_cast<std::uint64_t>(*times);
    if (ms) rule.wait = std::chrono::milliseconds(static_cast<std::int64_t>(*ms));
    rule.bytes_per_second = rate.value_or(0);
    if (own_seed) seed = static_cast<std::uint64_t>(*own_seed);
    return {};
}

Result<void> only(const json& document, std::span<const std::string_view> known) {
    for (const auto& entry : document.items()) {
        if (std::find(known.begin(), known.end(), entry.key()) == known.end())
            return wrong("unknown field '" + entry.key() + "'" + suggestion(entry.key(), known));
    }
    return {};
}

Result<FaultRule> rule_of(const json& document, std::uint64_t seed) {
    static constexpr std::array<std::string_view, 9> known{"fault", "ops", "keys", "probability",     "every",
                                                           "times", "ms",  "seed", "bytes_per_second"};
    if (!document.is_object()) return wrong("it must be an object, such as {\"fault\": \"error\"}");
    if (auto checked = only(document, known); !checked) return tl::unexpected(checked.error());
    const auto name = document.value("fault", json());
    if (!name.is_string()) return wrong("it names no fault" + suggestion("", fault_names));
    const auto fault = position(name.get<std::string>(), fault_names);
    if (!fault)
        return wrong("there is no fault '" + name.get<std::string>() + "'" +
                     suggestion(name.get<std::string>(), fault_names));
    FaultRule rule;
    rule.fault = static_cast<Fault>(*fault);
    if (const auto keys = document.find("keys"); keys != document.end()) {
        if (!keys->is_string()) return wrong("keys must be a pattern, such as \"*.g0.*\"");
        rule.keys = keys->get<std::string>();
    }
    if (auto taken = take_kinds(document, rule); !taken) return tl::unexpected(taken.error());
    if (auto taken = take_numbers(document, rule, seed); !taken) return tl::unexpected(taken.error());
    rule.random.seed(seed);
    return rule;
}

}  // namespace

Result<std::vector<FaultRule>> parse_fault_rules(std::string_view text) {
    static constexpr std::array<std::string_view, 2> known{"seed", "rules"};
    const auto document = json::parse(text, nullptr, false);
    if (document.is_discarded() || !document.is_object())
        return wrong("it is no JSON object, such as {\"rules\": [{\"fault\": \"error\", \"ops\": [\"get\"]}]}");
    if (auto checked = only(document, known); !checked) return tl::unexpected(checked.error());
    const auto seed = number(document, "seed", 0, 1e15);
    if (!seed) return tl::unexpected(seed.error());
    const auto list = document.value("rules", json::array());
    if (!list.is_array()) return wrong("rules must be a list");
    std::vector<FaultRule> rules;
    for (const auto& entry : list) {
        auto rule = rule_of(entry, static_cast<std::uint64_t>(seed->value_or(0)) + rules.size());
        if (!rule) return wrong("rule " + std::to_string(rules.size() + 1) + ": " + rule.error().message);
        rules.push_back(std::move(*rule));
    }
    return rules;
}

Result<void> FaultRules::open() {
    const std::lock_guard lock(mutex_);
    if (auto done = read(); !done) return tl::unexpected(done.error());
    next_look_ = std::chrono::steady_clock::now() + limits::fault_check;
    log(LogLevel::warning, "fault", "faults are injected on purpose: " + text());
    return {};
}

Result<bool> FaultRules::read() {
    struct stat status {};
    Version now;
    if (stat(path_.c_str(), &status) == 0) {
        now = {status.st_ino, static_cast<std::uint64_t>(status.st_size),
               static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1000000000 + status.st_mtim.tv_nsec};
    } else if (errno != ENOENT) {
        return tl::unexpected(error_from_errno(errno, "fault rules " + path_));
    }
    if (now == version_) return false;
    version_ = now;
    std::vector<FaultRule> rules;
    if (now != Version{}) {
        std::ifstream file(path_, std::ios::binary);
        const std::string bytes{std::istreambuf_iterator<char>(file), {}};
        auto parsed = parse_fault_rules(bytes);
        if (!parsed) return wrong("fault rules " + path_ + ": " + parsed.error().message);
        rules = std::move(*parsed);
    }
    rules_ = std::move(rules);
    ++generation_;
    return true;
}

void FaultRules::look() {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_look_) return;
    next_look_ = now + limits::fault_check;
    const auto done = read();
    if (!done) return log(LogLevel::warning, "fault", done.error().message + "; the rules before it stay");
    if (*done) log(LogLevel::warning, "fault", text());
}

std::optional<Injection> FaultRules::decide(const Op& op) {
    const std::lock_guard lock(mutex_);
    look();
    if (rules_.empty() || !check_op(op)) return std::nullopt;
    for (auto& rule : rules_) {
        if (!rule.kinds[static_cast<std::size_t>(op.kind)] || rule.fired >= rule.times) continue;
        if (rule.keys != "*" && fnmatch(rule.keys.c_str(), op.key.c_str(), 0) != 0) continue;
        ++rule.matched;
        if (rule.matched % rule.every != 0) continue;
        if (rule.probability < 1 && std::uniform_real_distribution<>()(rule.random) >= rule.probability) continue;
        ++rule.fired;
        return Injection{rule.fault, rule.wait, rule.bytes_per_second, rule.random()};
    }
    return std::nullopt;
}

void FaultRules::refresh() {
    const std::lock_guard lock(mutex_);
    look();
}

std::uint64_t FaultRules::generation() const {
    const std::lock_guard lock(mutex_);
    return generation_;
}

void FaultRules::count(Fault fault) {
    const std::lock_guard lock(mutex_);
    ++counts_[static_cast<std::size_t>(fault)];
}

std::string FaultRules::describe() const {
    const std::lock_guard lock(mutex_);
    return text();
}

std::string FaultRules::text() const {
    auto words = std::to_string(rules_.size()) + " rules of " + path_ + ", injected so far: ";
    bool any = false;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
        if (counts_[i] == 0) continue;
        words += (any ? ", " : "") + std::string(fault_names[i]) + " " + std::to_string(counts_[i]);
        any = true;
    }
    return words + (any ? "" : "nothing");
}

}  // namespace kvern
