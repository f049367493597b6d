-- For redis_exporter --script: every field of INFO leasehold, under its own name. It writes nothing, names no key, and
-- runs on replicas and on nodes of a cluster too.
local fields = {}
for name, value in string.gmatch(redis.call('INFO', 'leasehold'), '(leasehold_[%w_]+):(%-?%d+)') do
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end
return fields
