"""Who asks: tokens, clients and policies of recipients, and the tokens that this server seals."""
