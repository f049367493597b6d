package org.example.leasehold.adapter;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SslOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.resource.ClientResources;
import io.lettuce.core.resource.DefaultClientResources;
import java.io.File;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.example.leasehold.Leasehold;
import org.example.leasehold.Settings;

/** The package over Lettuce. */
final class Lettuce implements Adapter.Library {
    private final ClientResources resources = DefaultClientResources.create();
    private AbstractRedisClient client;

    @Override
    public Leasehold open(JsonObject request, Settings settings) {
        if (request.has("cluster")) {
            RedisClusterClient cluster = RedisClusterClient.create(uris(request.getAsJsonArray("cluster")));
            client = cluster;
            try {
                cluster.refreshPartitions();
            } catch (RuntimeException e) {
                // The first request tells what is wrong.
            }
            warmUp(uris(request.getAsJsonArray("cluster")).get(0));
            return Leasehold.over(cluster, settings);
        }
        if (request.has("quorum")) {
            List<RedisClient> clients = new ArrayList<>();
            uris(request.getAsJsonArray("quorum")).forEach(uri -> clients.add(RedisClient.create(resources, uri)));
            client = clients.get(0);
            warmUp(uris(request.getAsJsonArray("quorum")).get(0));
            return Leasehold.quorum(clients, settings);
        }
        boolean hasSentinels = request.has("sentinel");
        RedisURI uri = hasSentinels ? sentinels(request.getAsJsonObject("sentinel")) : RedisURI.create(Adapter.text(request, "url"));
        RedisClient single = RedisClient.create(resources, uri);
        client = single;
        if (Adapter.has(request, "ca") || Adapter.has(request, "certificate")) {
            single.setOptions(ClientOptions.builder().sslOptions(ssl(request)).build());
        }
        warmUp(uri);
        return Leasehold.over(single, uri, settings);
    }

    private static List<RedisURI> uris(JsonArray urls) {
        List<RedisURI> uris = new ArrayList<>();
        urls.forEach(url -> uris.add(RedisURI.create(url.getAsString())));
        return uris;
    }

    private static RedisURI sentinels(JsonObject sentinel) {
        RedisURI.Builder builder = RedisURI.builder().withSentinelMasterId(Adapter.text(sentinel, "service"));
        for (JsonElement each : sentinel.getAsJsonArray("urls")) {
            URI place = URI.create(each.getAsString());
            builder.withSentinel(place.getHost(), place.getPort());
        }
        return builder.build();
    }

    private static SslOptions ssl(JsonObject request) {
        SslOptions.Builder ssl = SslOptions.builder();
        if (Adapter.has(request, "ca")) {
            ssl.trustManager(new File(Adapter.text(request, "ca")));
        }
        if (Adapter.has(request, "certificate")) {
            ssl.keyManager(new File(Adapter.text(request, "certificate")), new File(Adapter.text(request, "key")), null);
        }
        return ssl.build();
    }

    /** The first connection of a JVM loads more than a thousand classes, which takes longer than some scenarios last. */
    private void warmUp(RedisURI uri) {
        RedisClient warm = RedisClient.create(resources);
        warm.setOptions(client.getOptions());
        try (var connection = warm.connectAsync(ByteArrayCodec.INSTANCE, uri).toCompletableFuture().get(2, TimeUnit.SECONDS)) {
            connection.async().ping().get(1, TimeUnit.SECONDS);
        } catch (Exception e) {
            // The first request tells what is wrong.
        }
    }

    @Override
    public void close() {
        client.shutdownAsync(0, 0, TimeUnit.SECONDS);
    }
}
