package org.example.leasehold;

/** An error that a server has answered a command with. */
public final class ServerException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /**
     * Makes one of what the server said.
     *
     * @param said the whole text, with its code
     */
    public ServerException(String said) {
        super(said, null, false, false);
    }
}
